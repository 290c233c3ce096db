// The numbered requirements of a datagram link (links/datagram_link.hpp), one check for each part of each.
#pragma once

#include <tensorpull/testing/conformance/detail/datagram_probe.hpp>
#include <tensorpull/testing/conformance/detail/link_requirements.hpp>
#include <tensorpull/testing/conformance/detail/open_descriptors.hpp>

#include <algorithm>
#include <array>
#include <type_traits>

namespace tensorpull::testing::detail {

/// A link may lose datagrams: a check sends again until one arrives.
template <datagram_factory Connect>
class datagram_requirements : public link_requirements<datagram_probe<Connect>> {
  using self = datagram_requirements;
  using probe = datagram_probe<Connect>;
  using link = typename probe::link;
  using address = typename probe::address;
  using base = link_requirements<probe>;
  using base::check, base::promptly, base::becomes, base::destroy, base::probe_, base::report_, base::untouched;
  using typename base::pair;

 public:
  explicit datagram_requirements(probe& p) noexcept : base(p) {}

  void run() {
    check("2.1", "a link's longest datagram has from 128 bytes to the constant", {}, &self::longest);
    check("3.1", "a receive on an idle link returns would_block", {}, &self::idle_status);
    check("3.2", "a receive never waits", {}, &self::takes_promptly);
    check("3.3", "a receive stays within its memory and returns how much it received", {"3.1"}, &self::receive_bounds);
    check("3.4", "a receive gives a datagram, the whole and alone", {"3.3"}, &self::whole);
    check("2.2", "a datagram of the longest size arrives", {"2.1", "3.4"}, &self::carry_longest);
    check("1.1", "an address equals its copy and hashes as it does", {"3.4"}, &self::copies);
    check("1.2", "what goes to the address that a datagram came from arrives there", {"3.4"}, &self::answers);
    check("3.5", "a datagram that is longer than the memory is dropped", {"3.4"}, &self::too_long);
    check("4.1", "a send takes its spans in order", {"3.4"}, &self::send_order);
    check("4.2", "a send never waits, also when the peer does not receive", {}, &self::send_promptly);
    check("4.3", "a send takes the whole or nothing", {"2.1", "3.4"}, &self::whole_or_nothing);
    check("5.2", "wait() ends when a datagram can be sent", {}, &self::wait_for_room);
    check("4.4", "after would_block, wait() reports when a send can go on", {"2.1", "4.3", "5.2"}, &self::goes_on);
    check("5.1", "wait() ends when a datagram can be received", {"3.4"}, &self::wait_for_arrival);
    check("5.3", "wait() reports nothing if nothing can be received", {}, &self::wait_idle);
    check("5.4", "wait() lasts about as long as it may", {"5.3"}, &self::wait_lasts);
    check("5.5", "wait() answers only what it was asked", {"5.1", "5.2"}, &self::wait_as_asked);
    check("5.6", "wait() knows of datagrams that the link holds already", {"5.1"}, &self::wait_for_the_rest);
    check("6.1", "a datagram that was damaged on the way is dropped", {"3.4"}, &self::damaged);
    report_.begin("7.1", "nobody can send with the address of another");
    report_.skip(link::addresses_are_proved ? "no call shows it: the link states it"
                                            : "the link does not say so: drivers ask for a cookie");
    check("4.5", "sending to a peer that is gone does no harm", {"3.4"}, &self::peer_gone);
    check("8.1", "a moved link goes on where it was", {"1.2"}, &self::move);
    check("8.2", "the destructor closes", {"3.4"}, &self::closes);
    check("8.3", "no call raises a signal", {}, &self::signals);
    check("8.4", "no call allocates, or as often as the link states", {"3.4"}, &self::allocates);
  }

 private:
  // Requirements 1 to 3: addresses, sizes, receiving.
  void longest(pair& c) {
    for (const link* const l : {&c.left, &c.right})
      if (l->datagram_bytes() < 128 || l->datagram_bytes() > link::max_datagram_bytes)
        report_.fail("it says %zu; the constant says %zu", l->datagram_bytes(), std::size_t{link::max_datagram_bytes});
  }
  void receive_bounds(pair& c) {
    const auto sent = probe_.datagram(100);
    for (auto lasts = probe_.patience(); lasts();) {
      (void)probe_.send(c.left, c.to_right, sent);
      c.left.wait(true, false, 0ms);
      std::array<std::byte, 144> memory;
      memory.fill(untouched);
      const io_result io = c.right.receive(std::span(memory).subspan(16, 100), from_);
      if (io.bytes > 100)
        return report_.fail("a datagram of 100 bytes was sent, and it says that it received %zu", io.bytes);
      for (std::size_t i = 0; i < memory.size(); ++i)
        if ((i < 16 || i >= 116) && memory[i] != untouched)
          return report_.fail("it wrote %s its memory", i < 16 ? "before" : "behind");
      if (io.status == io_status::ok) {
        if (io.bytes != 100 || !std::equal(sent.begin(), sent.end(), memory.begin() + 16))
          report_.fail("100 bytes were sent, and the %zu that were received are not those", io.bytes);
        return;
      }
      c.right.wait(true, false, 5ms);
    }
    report_.fail("a datagram of 100 bytes was sent again and again, and none arrived");
  }
  /// Whether a datagram of so many bytes arrives, sent again and again. If none does, the check has failed.
  bool arrives(pair& c, std::size_t bytes) {
    const bool did = probe_.deliver(c.left, c.to_right, c.right, from_, probe_.datagram(bytes));
    if (!did) report_.fail("a datagram of %zu bytes was sent again and again, and none arrived", bytes);
    return did;
  }
  void carry(pair& c, std::size_t bytes) {
    for (int kind = 0; kind < 3 && arrives(c, bytes); ++kind) {  // other bytes each time
    }
  }
  void carry_longest(pair& c) { carry(c, c.left.datagram_bytes()); }
  void whole(pair& c) {
    for (const std::size_t bytes : {1u, 2u, 7u, 8u, 9u, 40u, 127u, 128u})
      if (report_.holds()) carry(c, bytes);
    // several of different sizes are under way at once
    for (std::size_t bytes = 8; bytes < 128; bytes += 17) (void)probe_.send(c.left, c.to_right, probe_.datagram(bytes));
    while (report_.holds() && probe_.receive(c.right, from_, 20ms)) {
    }
  }
  void copies(pair& c) {
    static_assert(std::is_trivially_copyable_v<address>, "an address is trivially copyable (requirement 1)");
    if (!arrives(c, 40)) return;
    for (const address& a : {c.to_right, from_}) {
      const address copy = a;
      if (!(copy == a)) return report_.fail("a copy does not equal its original");
      if (copy.hash() != a.hash()) return report_.fail("a copy has another hash than its original");
    }
    address again{};
    if (probe_.deliver(c.left, c.to_right, c.right, again, probe_.datagram(50)) &&
        (!(again == from_) || again.hash() != from_.hash()))
      report_.fail("two datagrams of one peer came from different addresses");
  }
  void answers(pair& c) {
    address back{};
    if (!arrives(c, 40)) return;
    if (!probe_.deliver(c.right, from_, c.left, back, probe_.datagram(41)))
      return report_.fail("an answer to the address that a datagram came from did not arrive");
    if (!probe_.deliver(c.left, back, c.right, from_, probe_.datagram(42)))
      report_.fail("an answer to that answer did not arrive");
  }
  void too_long(pair& c) {
    for (int i = 0; i < 8; ++i) (void)probe_.send(c.left, c.to_right, probe_.datagram(100));
    c.left.wait(true, false, 0ms);
    for (int i = 0; i < 30; ++i) {
      std::array<std::byte, 80> memory;
      memory.fill(untouched);
      const io_result io = c.right.receive(std::span(memory).first(40), from_);
      if (io.status == io_status::ok)
        return report_.fail("a datagram of 100 bytes was received into 40, as one of %zu", io.bytes);
      if (io.status != io_status::would_block)
        return report_.fail("a datagram that is too long ended the link with status %d", static_cast<int>(io.status));
      if (std::any_of(memory.begin() + 40, memory.end(), [](std::byte b) { return b != untouched; }))
        return report_.fail("it wrote behind its memory");
      c.right.wait(true, false, 2ms);
    }
    (void)arrives(c, 30);
  }

  // Requirement 4: sending.
  void send_order(pair& c) {
    const auto sent = probe_.datagram(61);
    const std::span<const std::byte> all(sent);
    const std::array<std::span<const std::byte>, 5> spans{all.first(1), all.subspan(1, 0), all.subspan(1, 7),
                                                          all.subspan(8, 3), all.subspan(11)};
    for (auto lasts = probe_.patience(); lasts();) {
      const io_result io = c.left.send(spans, c.to_right);
      if (io.status == io_status::ok && io.bytes != 61 && io.bytes != 0)
        return report_.fail("a datagram of 61 bytes in 5 spans was sent, and it says %zu", io.bytes);
      c.left.wait(true, false, 0ms);
      while (const auto got = probe_.receive(c.right, from_, 20ms))
        if (*got == sent) return;
      if (!report_.holds())
        return report_.fail("sent from 5 spans (1, 0, 7, 3 and 50 bytes), the bytes are not in their order");
    }
    report_.fail("sent from 5 spans (1, 0, 7, 3 and 50 bytes), it did not arrive");
  }
  /// Sends until the link would block, or so much that it never will; at most so many bytes, since a datagram may have
  /// a megabyte.
  template <class F>
  bool fill(pair& c, F sent) {
    const std::size_t longest = c.left.datagram_bytes();
    for (std::size_t bytes = 0, i = 0; bytes < (std::size_t{8} << 20) && i < 2000; ++i) {
      const auto d = probe_.datagram(i % 4 == 3 ? longest : std::min<std::size_t>(longest, 100 + i % 28));
      const io_result io = probe::send_once(c, d);
      if (io.status == io_status::would_block) return true;
      if (!sent(io, d.size())) return false;
      bytes += d.size();
    }
    return false;
  }
  void send_promptly(pair& c) {
    (void)fill(c, [](const io_result& io, std::size_t) { return io.status == io_status::ok; });
    const auto d = probe_.datagram(100);
    promptly("a send to a peer that does not receive", [&] { (void)probe::send_once(c, d); });
  }
  void whole_or_nothing(pair& c) {
    (void)fill(c, [this](const io_result& io, std::size_t bytes) {
      if (io.status != io_status::ok)
        report_.fail("a peer that does not receive ended the link with status %d", static_cast<int>(io.status));
      else if (io.bytes != bytes && io.bytes != 0)
        report_.fail("it was given %zu bytes and says that it took %zu", bytes, io.bytes);
      return report_.holds();
    });
    // what is received is checked to be one of them
    while (report_.holds() && probe_.receive(c.right, from_, 5ms)) c.left.wait(true, false, 0ms);
  }
  void goes_on(pair& c) {
    if (!fill(c, [](const io_result& io, std::size_t) { return io.status == io_status::ok; }))
      return report_.skip("it never said would_block");
    for (auto lasts = probe_.patience(); lasts();) {
      (void)probe_.receive(c.right, from_, 1ms);
      if (!c.left.wait(false, true, 1ms).write) continue;
      const auto d = probe_.datagram(20);
      if (probe::send_once(c, d).status == io_status::ok) return;
    }
    report_.fail("the peer received what there was, and the link still would block");
  }
  void peer_gone(pair& c) {
    if (!arrives(c, 40)) return;
    destroy(c.right);
    std::array<std::byte, 128> memory;
    const auto d = probe_.datagram(100);
    for (int i = 0; i < 30; ++i) {
      const io_status s = probe::send_once(c, d).status, r = c.left.receive(memory, from_).status;
      // a link that has one peer may end with it; another one has other peers
      if constexpr (!std::is_empty_v<address>)
        if (s == io_status::closed || s == io_status::failed || r == io_status::closed || r == io_status::failed)
          return report_.fail("one peer is gone, and the link can be used no more: send says %d, receive says %d",
                              static_cast<int>(s), static_cast<int>(r));
      if (r == io_status::ok) return report_.fail("the peer is gone, and a datagram arrived");
      c.left.wait(true, true, 1ms);
    }
  }

  // Requirement 5: waiting.
  void wait_for_the_rest(pair& c) {
    if (!probe_.let_arrive(c)) return report_.fail("no datagram arrived");
    // all that there are can be received now; before each of them, wait() has to say so
    std::vector<std::byte> memory(link::max_datagram_bytes);
    for (int received = 0;; ++received) {
      const bool said = becomes([&] { return c.right.wait(true, false, 10ms).read; });
      if (c.right.receive(memory, from_).status != io_status::ok) return;
      if (!said)
        return report_.fail("%d datagrams were received, it does not say that another one can be, and there was one",
                            received);
    }
  }

  // Requirements 6 and 8: damage, moving, closing, signals, memory.
  void damaged(pair& c) {
    if constexpr (!link::checked) report_.skip("the link says that it does not check");
    else if constexpr (!probe::damages)
      report_.skip("nothing damages datagrams here (conformance_options.hpp, damage_next)");
    else {
      for (int i = 0; i < 200 && report_.holds(); ++i) {
        probe_.damage_next();
        (void)probe_.send(c.left, c.to_right, probe_.datagram(8 + static_cast<std::size_t>(i) % 120));
        c.left.wait(true, false, 0ms);
        // what is not as it was sent fails the check
        (void)probe_.receive(c.right, from_, 0ms);
      }
      if (report_.holds()) (void)arrives(c, 99);
    }
  }
  void move(pair& c) {
    if (!arrives(c, 40)) return;
    link left = std::move(c.left), right = std::move(c.right);
    if (!probe_.deliver(left, c.to_right, right, from_, probe_.datagram(41)))
      return report_.fail("after both ends were moved, no datagram arrived");
    auto other = probe_.connect();
    if (!other) return;
    other->left = std::move(left);
    other->right = std::move(right);
    if (!probe_.deliver(other->right, from_, other->left, from_, probe_.datagram(42)))
      report_.fail("after both ends were moved into others, no datagram arrived");
  }
  void closes(pair&) {
    const int before = open_descriptors();
    if (before < 0) return report_.skip("this system does not list open descriptors");
    for (int i = 0; i < 3; ++i)
      if (const auto c = probe_.connect(); !c) return;
    if (const int after = open_descriptors(); after > before)
      report_.fail("three pairs were made and destroyed, and %d descriptors more are open", after - before);
  }
  void allocates(pair& c) {
    std::uint64_t stated = 0;
    if constexpr (requires { link::allocations_per_datagram; }) stated = link::allocations_per_datagram;
    const auto sent = probe_.datagram(120);
    std::vector<std::byte> into(link::max_datagram_bytes);
    base::allocates(stated, [&] {
      (void)c.left.wait(true, true, 0ms);
      (void)probe::send_once(c, sent);
      (void)c.right.wait(true, false, 5ms);
      (void)c.right.receive(into, from_);
    });
  }

  address from_{};  // of the datagram that arrived last
};

}  // namespace tensorpull::testing::detail
