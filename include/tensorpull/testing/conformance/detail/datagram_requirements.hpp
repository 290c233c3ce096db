// The numbered requirements of a datagram link (links/datagram_link.hpp), one check for each part of each.
#pragma once

#include <tensorpull/testing/conformance/detail/datagram_probe.hpp>
#include <tensorpull/testing/conformance/detail/link_requirements.hpp>
#include <tensorpull/testing/conformance/detail/open_descriptors.hpp>
#include <tensorpull/testing/conformance/detail/pipe_signals.hpp>

#include <algorithm>
#include <array>
#include <type_traits>

namespace tensorpull::testing::detail {

/// A link may lose datagrams: a check sends again until one arrives.
template <datagram_factory Connect>
class datagram_requirements : link_requirements<datagram_probe<Connect>> {
  using probe = datagram_probe<Connect>;
  using pair = typename probe::pair;
  using link = typename probe::link;
  using address = typename probe::address;
  using base = link_requirements<probe>;
  using base::check, base::promptly, base::about_as_long, base::becomes, base::ull, base::probe_, base::report_;
  using base::untouched, base::some_time;

 public:
  explicit datagram_requirements(probe& p) noexcept : base(p) {}

  void run() {
    check("2.1", "a link's longest datagram has from 128 bytes to the constant", {}, [this](auto& c) { longest(c); });
    check("3.1", "a receive on an idle link says would_block", {}, [this](auto& c) { idle_status(c.left); });
    check("3.2", "a receive never waits", {}, [this](auto& c) { receive_promptly(c.left); });
    check("3.3", "a receive stays within its memory and says how much it received", {"3.1"},
          [this](auto& c) { receive_bounds(c); });
    check("3.4", "a receive gives a datagram, the whole and alone", {"3.3"}, [this](auto& c) { whole(c); });
    check("2.2", "a datagram of the longest size arrives", {"2.1", "3.4"},
          [this](auto& c) { carry(c, c.left.datagram_bytes()); });
    check("1.1", "an address equals its copy and hashes as it does", {"3.4"}, [this](auto& c) { copies(c); });
    check("1.2", "what goes to the address that a datagram came from arrives there", {"3.4"},
          [this](auto& c) { answers(c); });
    check("3.5", "a datagram that is longer than the memory is dropped", {"3.4"}, [this](auto& c) { too_long(c); });
    check("4.1", "a send takes its spans in order", {"3.4"}, [this](auto& c) { send_order(c); });
    check("4.2", "a send never waits, also when the peer does not receive", {}, [this](auto& c) { send_promptly(c); });
    check("4.3", "a send takes the whole or nothing", {"2.1", "3.4"}, [this](auto& c) { whole_or_nothing(c); });
    check("5.2", "wait() ends when a datagram can be sent", {}, [this](auto& c) { wait_for_room(c.left); });
    check("4.4", "after would_block, wait() says when a send can go on", {"2.1", "4.3", "5.2"},
          [this](auto& c) { goes_on(c); });
    check("5.1", "wait() ends when a datagram can be received", {"3.4"}, [this](auto& c) { wait_for_datagram(c); });
    check("5.3", "wait() says nothing if nothing can be received", {}, [this](auto& c) { wait_idle(c.left); });
    check("5.4", "wait() lasts about as long as it may", {"5.3"},
          [this](auto& c) { about_as_long([&] { (void)wait_and_receive(c.left, some_time); }); });
    check("5.5", "wait() answers only what it was asked", {"5.1", "5.2"}, [this](auto& c) { wait_as_asked(c); });
    check("5.6", "wait() knows of datagrams that the link holds already", {"5.1"},
          [this](auto& c) { wait_for_the_rest(c); });
    check("6.1", "a datagram that was damaged on the way is dropped", {"3.4"}, [this](auto& c) { damaged(c); });
    report_.begin("7.1", "nobody can send with the address of another");
    report_.skip(link::addresses_are_proved ? "no call shows it: the link says so"
                                            : "the link does not say so: drivers ask for a cookie");
    check("4.5", "sending to a peer that is gone does no harm", {"3.4"}, [this](auto& c) { peer_gone(c); });
    check("8.1", "a moved link goes on where it was", {"1.2"}, [this](auto& c) { move(c); });
    check("8.2", "the destructor closes", {"3.4"}, [this](auto&) { closes(); });
    check("8.3", "no call raises a signal", {}, [this](auto&) { pipe_signals::judge(report_); });
    check("8.4", "no call allocates, or as often as the link states", {"3.4"}, [this](auto& c) { allocates(c); });
  }

 private:
  // Requirements 1 to 3: addresses, sizes, receiving.
  void longest(pair& c) {
    for (const link* const l : {&c.left, &c.right})
      if (l->datagram_bytes() < 128 || l->datagram_bytes() > link::max_datagram_bytes)
        report_.fail("it says %zu; the constant says %zu", l->datagram_bytes(), std::size_t{link::max_datagram_bytes});
  }
  void idle_status(link& l) {
    std::array<std::byte, 128> memory;
    address from{};
    const io_result io = l.receive(memory, from);
    if (io.status != io_status::would_block || io.bytes != 0)
      report_.fail("an idle link answered status %d with %zu bytes, and not would_block", static_cast<int>(io.status),
                   io.bytes);
  }
  void receive_promptly(link& l) {
    std::array<std::byte, 128> memory;
    address from{};
    promptly("a receive on an idle link", [&] { (void)l.receive(memory, from); });
  }
  void receive_bounds(pair& c) {
    const auto sent = probe_.datagram(100);
    for (const std::uint64_t begin = probe_.now_us(); probe_.now_us() - begin < probe_.patience_us();) {
      (void)probe_.send(c.left, c.to_right, sent);
      c.left.wait(true, false, std::chrono::milliseconds(0));
      std::array<std::byte, 144> memory;
      memory.fill(untouched);
      address from{};
      const io_result io = c.right.receive(std::span(memory).subspan(16, 100), from);
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
      c.right.wait(true, false, std::chrono::milliseconds(5));
    }
    report_.fail("a datagram of 100 bytes was sent again and again, and none arrived");
  }
  void carry(pair& c, std::size_t bytes) {
    address from{};
    for (int kind = 0; kind < 3 && report_.holds(); ++kind)  // other bytes each time
      if (!probe_.deliver(c.left, c.to_right, c.right, from, probe_.datagram(bytes)))
        report_.fail("a datagram of %zu bytes was sent again and again, and none arrived", bytes);
  }
  void whole(pair& c) {
    for (const std::size_t bytes : {1u, 2u, 7u, 8u, 9u, 40u, 127u, 128u})
      if (report_.holds()) carry(c, bytes);
    // several of different sizes are under way at once
    for (std::size_t bytes = 8; bytes < 128; bytes += 17) (void)probe_.send(c.left, c.to_right, probe_.datagram(bytes));
    address from{};
    while (report_.holds() && probe_.receive(c.right, from, std::chrono::milliseconds(20))) {
    }
  }
  void copies(pair& c) {
    static_assert(std::is_trivially_copyable_v<address>, "an address is trivially copyable (requirement 1)");
    address from{};
    if (!probe_.deliver(c.left, c.to_right, c.right, from, probe_.datagram(40)))
      return report_.fail("no datagram arrived");
    for (const address& a : {c.to_right, from}) {
      const address copy = a;
      if (!(copy == a)) return report_.fail("a copy does not equal its original");
      if (copy.hash() != a.hash()) return report_.fail("a copy has another hash than its original");
    }
    address again{};
    if (probe_.deliver(c.left, c.to_right, c.right, again, probe_.datagram(50)) &&
        (!(again == from) || again.hash() != from.hash()))
      report_.fail("two datagrams of one peer came from different addresses");
  }
  void answers(pair& c) {
    address from{}, back{};
    if (!probe_.deliver(c.left, c.to_right, c.right, from, probe_.datagram(40)))
      return report_.fail("no datagram arrived");
    if (!probe_.deliver(c.right, from, c.left, back, probe_.datagram(41)))
      return report_.fail("an answer to the address that a datagram came from did not arrive");
    if (!probe_.deliver(c.left, back, c.right, from, probe_.datagram(42)))
      report_.fail("an answer to that answer did not arrive");
  }
  void too_long(pair& c) {
    address from{};
    for (int i = 0; i < 8; ++i) (void)probe_.send(c.left, c.to_right, probe_.datagram(100));
    c.left.wait(true, false, std::chrono::milliseconds(0));
    for (int i = 0; i < 30; ++i) {
      std::array<std::byte, 80> memory;
      memory.fill(untouched);
      const io_result io = c.right.receive(std::span(memory).first(40), from);
      if (io.status == io_status::ok)
        return report_.fail("a datagram of 100 bytes was received into 40, as one of %zu", io.bytes);
      if (io.status != io_status::would_block)
        return report_.fail("a datagram that is too long ended the link with status %d", static_cast<int>(io.status));
      if (std::any_of(memory.begin() + 40, memory.end(), [](std::byte b) { return b != untouched; }))
        return report_.fail("it wrote behind its memory");
      c.right.wait(true, false, std::chrono::milliseconds(2));
    }
    if (!probe_.deliver(c.left, c.to_right, c.right, from, probe_.datagram(30)))
      report_.fail("after a datagram that was too long for the memory, no other arrived");
  }

  // Requirement 4: sending.
  void send_order(pair& c) {
    const auto sent = probe_.datagram(61);
    const std::span<const std::byte> all(sent);
    const std::array<std::span<const std::byte>, 5> spans{all.first(1), all.subspan(1, 0), all.subspan(1, 7),
                                                          all.subspan(8, 3), all.subspan(11)};
    for (const std::uint64_t begin = probe_.now_us(); probe_.now_us() - begin < probe_.patience_us();) {
      const io_result io = c.left.send(spans, c.to_right);
      if (io.status == io_status::ok && io.bytes != 61 && io.bytes != 0)
        return report_.fail("a datagram of 61 bytes in 5 spans was sent, and it says %zu", io.bytes);
      c.left.wait(true, false, std::chrono::milliseconds(0));
      address from{};
      while (const auto got = probe_.receive(c.right, from, std::chrono::milliseconds(20)))
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
      const std::span<const std::byte> all(d);
      const io_result io = c.left.send({&all, 1}, c.to_right);
      if (io.status == io_status::would_block) return true;
      if (!sent(io, d.size())) return false;
      bytes += d.size();
    }
    return false;
  }
  void send_promptly(pair& c) {
    (void)fill(c, [](const io_result& io, std::size_t) { return io.status == io_status::ok; });
    const auto d = probe_.datagram(100);
    const std::span<const std::byte> all(d);
    promptly("a send to a peer that does not receive", [&] { (void)c.left.send({&all, 1}, c.to_right); });
  }
  void whole_or_nothing(pair& c) {
    (void)fill(c, [this](const io_result& io, std::size_t bytes) {
      if (io.status != io_status::ok)
        report_.fail("a peer that does not receive ended the link with status %d", static_cast<int>(io.status));
      else if (io.bytes != bytes && io.bytes != 0)
        report_.fail("it was given %zu bytes and says that it took %zu", bytes, io.bytes);
      return report_.holds();
    });
    address from{};
    // what is received is checked to be one of them
    while (report_.holds() && probe_.receive(c.right, from, std::chrono::milliseconds(5)))
      c.left.wait(true, false, std::chrono::milliseconds(0));
  }
  void goes_on(pair& c) {
    if (!fill(c, [](const io_result& io, std::size_t) { return io.status == io_status::ok; }))
      return report_.skip("it never said would_block");
    address from{};
    for (const std::uint64_t begin = probe_.now_us(); probe_.now_us() - begin < probe_.patience_us();) {
      (void)probe_.receive(c.right, from, std::chrono::milliseconds(1));
      if (!c.left.wait(false, true, std::chrono::milliseconds(1)).write) continue;
      const auto d = probe_.datagram(20);
      const std::span<const std::byte> all(d);
      if (c.left.send({&all, 1}, c.to_right).status == io_status::ok) return;
    }
    report_.fail("the peer received what there was, and the link still would block");
  }
  void peer_gone(pair& c) {
    address from{};
    if (!probe_.deliver(c.left, c.to_right, c.right, from, probe_.datagram(40)))
      return report_.fail("no datagram arrived");
    {
      const link gone = std::move(c.right);
    }
    std::array<std::byte, 128> memory;
    const auto d = probe_.datagram(100);
    const std::span<const std::byte> all(d);
    for (int i = 0; i < 30; ++i) {
      const io_status s = c.left.send({&all, 1}, c.to_right).status, r = c.left.receive(memory, from).status;
      // a link that has one peer may end with it; another one has other peers
      if constexpr (!std::is_empty_v<address>)
        if (s == io_status::closed || s == io_status::failed || r == io_status::closed || r == io_status::failed)
          return report_.fail("one peer is gone, and the link can be used no more: send says %d, receive says %d",
                              static_cast<int>(s), static_cast<int>(r));
      if (r == io_status::ok) return report_.fail("the peer is gone, and a datagram arrived");
      c.left.wait(true, true, std::chrono::milliseconds(1));
    }
  }

  // Requirement 5: waiting.
  void wait_for_datagram(pair& c) {
    if (!probe_.let_arrive(c)) report_.fail("datagrams were sent, and it does not say that one can be received");
  }
  void wait_for_room(link& l) {
    if (!becomes([&] { return l.wait(false, true, some_time).write; }))
      report_.fail("nothing was sent yet, and it does not say that a datagram can be sent");
  }
  /// Waits, and receives if there is something, which may be for the link itself.
  bool wait_and_receive(link& l, std::chrono::milliseconds time) {
    if (!l.wait(true, false, time).read) return false;
    std::array<std::byte, 128> memory;
    address from{};
    (void)l.receive(memory, from);
    return true;
  }
  void wait_idle(link& l) {
    int times = 0;
    for (int i = 0; i < 3; ++i) times += wait_and_receive(l, std::chrono::milliseconds(1)) ? 1 : 0;
    if (times == 3) report_.fail("on an idle link it says that a datagram can be received: whoever waits would spin");
  }
  void wait_as_asked(pair& c) {
    if (!probe_.let_arrive(c)) return report_.fail("no datagram arrived");
    if (c.right.wait(true, false, some_time).write) report_.fail("asked about receiving, it answers about sending");
    else if (c.right.wait(false, true, some_time).read) report_.fail("asked about sending, it answers about receiving");
  }
  void wait_for_the_rest(pair& c) {
    if (!probe_.let_arrive(c)) return report_.fail("no datagram arrived");
    // all that there are can be received now; before each of them, wait() has to say so
    std::vector<std::byte> memory(link::max_datagram_bytes);
    address from{};
    for (int received = 0;; ++received) {
      const bool said = becomes([&] { return c.right.wait(true, false, std::chrono::milliseconds(10)).read; });
      if (c.right.receive(memory, from).status != io_status::ok) return;
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
      address from{};
      for (int i = 0; i < 200 && report_.holds(); ++i) {
        probe_.damage_next();
        (void)probe_.send(c.left, c.to_right, probe_.datagram(8 + static_cast<std::size_t>(i) % 120));
        c.left.wait(true, false, std::chrono::milliseconds(0));
        // what is not as it was sent fails the check
        (void)probe_.receive(c.right, from, std::chrono::milliseconds(0));
      }
      if (report_.holds() && !probe_.deliver(c.left, c.to_right, c.right, from, probe_.datagram(99)))
        report_.fail("after damaged datagrams, none arrived that was not");
    }
  }
  void move(pair& c) {
    address from{};
    if (!probe_.deliver(c.left, c.to_right, c.right, from, probe_.datagram(40)))
      return report_.fail("no datagram arrived");
    link left = std::move(c.left), right = std::move(c.right);
    if (!probe_.deliver(left, c.to_right, right, from, probe_.datagram(41)))
      return report_.fail("after both ends were moved, no datagram arrived");
    auto other = probe_.connect();
    if (!other) return;
    other->left = std::move(left);
    other->right = std::move(right);
    if (!probe_.deliver(other->right, from, other->left, from, probe_.datagram(42)))
      report_.fail("after both ends were moved into others, no datagram arrived");
  }
  void closes() {
    const int before = open_descriptors();
    if (before < 0) return report_.skip("this system does not list open descriptors");
    for (int i = 0; i < 3; ++i)
      if (const auto c = probe_.connect(); !c) return;
    if (const int after = open_descriptors(); after > before)
      report_.fail("three pairs were made and destroyed, and %d descriptors more are open", after - before);
  }
  void allocates(pair& c) {
    if (probe_.options.allocations == nullptr)
      return report_.skip("the program does not count allocations (conformance_options::allocations)");
    std::uint64_t stated = 0;
    if constexpr (requires { link::allocations_per_datagram; }) stated = link::allocations_per_datagram;
    const auto sent = probe_.datagram(120);
    std::vector<std::byte> into(link::max_datagram_bytes);
    const std::span<const std::byte> out(sent);
    address from{};
    const std::uint64_t before = probe_.options.allocations();
    for (int i = 0; i < 20; ++i) {
      (void)c.left.wait(true, true, std::chrono::milliseconds(0));
      (void)c.left.send({&out, 1}, c.to_right);
      (void)c.right.wait(true, false, std::chrono::milliseconds(5));
      (void)c.right.receive(into, from);
    }
    const std::uint64_t made = probe_.options.allocations() - before;
    if (made > 20 * stated)
      report_.fail("20 datagrams took %llu heap allocations, and the link states %llu for each", ull(made),
                   ull(stated));
  }
};

}  // namespace tensorpull::testing::detail
