// The numbered requirements of a pollable stream and of a listener (links/posix/pollable_stream.hpp), one check for
// each part of each.
#pragma once

#include <tensorpull/links/posix/pollable_stream.hpp>
#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/testing/conformance/detail/link_requirements.hpp>
#include <tensorpull/testing/conformance/detail/stream_probe.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <utility>

namespace tensorpull::testing::detail {

/// The common part of both checks of the two ends of a connection.
template <stream_factory Connect>
class pollable_ends : public link_requirements<stream_probe<Connect>> {
 protected:
  using probe = stream_probe<Connect>;
  using stream = typename probe::stream;
  using base = link_requirements<probe>;
  using base::probe_, base::report_;
  using typename base::pair;
  static constexpr bool establishes = requires(stream& s) {
    { s.establish() } -> std::same_as<establishment>;
  };

  explicit pollable_ends(probe& p) noexcept : base(p) {}

  /// Establishes both ends, as far as they have something to do for that. False: the check has failed.
  bool made_ready(pair& c) {
    if constexpr (establishes) {
      std::array<stream*, 2> left{&c.left, &c.right};
      for (auto lasts = probe_.patience(); left[0] != nullptr || left[1] != nullptr;) {
        for (stream*& s : left) {
          if (s == nullptr) continue;
          const establishment now = s->establish();
          if (now.status == io_status::ok) s = nullptr;
          else if (now.status != io_status::would_block)
            report_.fail("establish() returns status %d, errno %d", static_cast<int>(now.status), now.system);
          else if (!now.waits_for.read && !now.waits_for.write)
            report_.fail("establish() would block, and names no direction to wait for");
          if (!report_.holds()) return false;
        }
        if (!lasts()) report_.fail("it was not established within %llu ms", base::ull(probe_.patience_us() / 1000));
        if (!report_.holds()) return false;
        tensorpull::detail::pause(1ms);
      }
    }
    return true;
  }
  /// Waits for the descriptor as an event loop does; false: it is not ready in time.
  static bool announced(stream& s, std::chrono::milliseconds time) {
    io_ready wanted{true, false};
    if constexpr (requires { s.interest(wanted); }) wanted = s.interest(wanted);
    pollfd p = tensorpull::detail::polled(s.native_handle(), wanted);
    return tensorpull::detail::poll_for(&p, 1, time) > 0;
  }
};

template <stream_factory Connect>
class pollable_requirements : public pollable_ends<Connect> {
  using self = pollable_requirements;
  using base = pollable_ends<Connect>;
  using base::check, base::promptly, base::made_ready, base::announced, base::destroy, base::probe_, base::report_,
      base::establishes;
  using typename base::pair, typename base::stream, typename base::probe;

 public:
  explicit pollable_requirements(probe& p) noexcept : base(p) {}

  void run() {
    check("4.1", "establish() returns `ok` in time, and until then names what it waits for", {}, &self::established);
    check("4.2", "establish() never waits, and after an `ok` returns it again", {"4.1"}, &self::establishes_again);
    check("2.1", "the descriptor stays the same, also when the stream is moved", {"4.1"}, &self::same_descriptor);
    check("2.2", "the descriptor is ready when bytes have arrived", {"4.1"}, &self::ready_for_bytes);
    check("2.3", "the descriptor of an idle stream is not ready again and again", {"4.1"}, &self::idle);
    check("2.4", "the descriptor is ready when the peer has closed", {"2.1"}, &self::ready_for_end);
    check("3.1", "after a read that was short the descriptor announces what is left", {"2.1", "2.2"},
          &self::announces_the_rest);
    check("5.1", "interest() names a direction for each that is wanted", {"4.1"}, &self::interested);
  }

 private:
  void established(pair& c) { (void)made_ready(c); }
  void establishes_again(pair& c) {
    if constexpr (!establishes) report_.skip("there is none; it is optional");
    else {
      promptly("establish() of a new connection", [&] { (void)c.left.establish(); });
      if (!made_ready(c)) return;
      if (c.left.establish().status != io_status::ok || c.right.establish().status != io_status::ok)
        report_.fail("it said `ok`, and then something else");
    }
  }
  void same_descriptor(pair& c) {
    const int before = c.left.native_handle();
    if (::fcntl(before, F_GETFD) < 0) return report_.fail("%d is no descriptor", before);
    if (!made_ready(c)) return;
    probe_.send(c.right, probe_.some_bytes(100));
    (void)probe_.receive(c.left, 100);
    if (c.left.native_handle() != before) return report_.fail("it is another one after bytes have moved");
    {
      const stream moved = std::move(c.left);
      if (moved.native_handle() != before) return report_.fail("the moved stream has another one");
    }
    if (::fcntl(before, F_GETFD) >= 0) report_.fail("it is still open although the stream is gone");
  }
  void ready_for_bytes(pair& c) {
    if (!made_ready(c)) return;
    probe_.send(c.left, probe_.some_bytes(10));
    std::array<std::byte, 10> memory;
    for (int i = 0; i < 5 && announced(c.right, probe_.options.patience); ++i)
      if (probe::read(c.right, memory).bytes > 0) return;
    report_.fail("10 bytes were sent, and the descriptor is not ready");
  }
  void idle(pair& c) {
    if (!made_ready(c)) return;
    int times = 0;
    std::array<std::byte, 8> memory;
    for (int i = 0; i < 5; ++i)  // some may be for the stream itself, as a TLS session ticket is
      if (announced(c.right, 10ms)) ++times, (void)probe::read(c.right, memory);
    if (times == 5) report_.fail("nothing has arrived, and it is ready: an event loop would spin");
  }
  void ready_for_end(pair& c) {
    if (!made_ready(c)) return;
    destroy(c.left);
    std::array<std::byte, 8> memory;
    for (int i = 0; i < 5; ++i) {
      if (!announced(c.right, probe_.options.patience)) break;
      if (is_end(probe::read(c.right, memory).status)) return;
    }
    report_.fail("the peer has closed, and an event loop does not hear of it");
  }
  void announces_the_rest(pair& c) {
    if (!made_ready(c)) return;
    for (const std::size_t bytes : {1u, 100u, 5'000u, 30'000u})
      for (const std::size_t room : {7u, 64u, 4'096u}) {
        const auto sent = probe_.some_bytes(bytes);
        if (probe_.send(c.left, sent) != bytes) return report_.fail("%zu bytes could not be sent", bytes);
        if (!read_as_announced(c.right, bytes, room))
          return report_.fail("of %zu bytes, read %zu at a time until a read was short, some were never announced",
                              bytes, room);
      }
  }
  /// Reads so many bytes in the way of an event loop: whenever the descriptor is ready, until a read is short.
  bool read_as_announced(stream& s, std::size_t bytes, std::size_t room) {
    std::vector<std::byte> memory(room);
    for (std::size_t got = 0; got < bytes;) {
      if (!announced(s, probe_.options.patience)) return false;
      std::size_t n = room;
      while (n == room) {
        const io_result io = probe::read(s, memory);
        if (is_end(io.status)) return false;
        n = io.bytes;
        got += n;
      }
    }
    return true;
  }
  void interested(pair& c) {
    if (!made_ready(c)) return;
    if constexpr (!requires { c.left.interest(io_ready{}); }) report_.skip("there is none; it is optional");
    else
      for (const io_ready wanted : {io_ready{true, false}, io_ready{false, true}, io_ready{true, true}}) {
        const io_ready said = c.left.interest(wanted);
        if (!said.read && !said.write) return report_.fail("something is wanted, and it waits for nothing");
      }
  }
};

/// `Listen`: `listen() -> result<L>`; `Reach`: `reach(L&) -> result<S>`, a connection to it. `Connect`: makes both
/// ends.
template <class Listen, class Reach, stream_factory Connect>
class listener_requirements : public pollable_ends<Connect> {
  using self = listener_requirements;
  using base = pollable_ends<Connect>;
  using base::check, base::promptly, base::made_ready, base::probe_, base::report_;
  using typename base::pair, typename base::stream, typename base::probe;
  using listener = typename std::invoke_result_t<Listen&>::value_type;

 public:
  listener_requirements(probe& p, Listen& listen, Reach& reach) noexcept : base(p), listen_(listen), reach_(reach) {}

  void run() {
    with("1.1", "accept() never waits, and returns timed_out if no connection waits", {}, &self::nobody);
    with("2.1", "the descriptor is readable when a connection waits", {"1.1"}, &self::readable);
    check("1.2", "bytes go over an accepted connection, both ways", {"2.1"}, &self::carries);
    with("1.3", "each connection is accepted once", {"2.1"}, &self::once);
    with("1.4", "without descriptors accept() returns out_of_memory, and takes the connection later", {"2.1"},
         &self::scarce);
    with("3.1", "a moved listener goes on", {"2.1"}, &self::move);
    with("3.2", "the destructor stops listening", {"2.1"}, &self::ends);
    with("4.1", "port() is a port", {}, &self::port);
  }

 private:
  void with(std::string_view number, std::string_view what, std::initializer_list<std::string_view> rests_on,
            void (self::*judge)(listener&)) {
    if (!base::begins(number, what, rests_on)) return;
    auto l = listen_();
    if (!l) return report_.fail("it does not listen: %s", to_string(l.error().code).data());
    (this->*judge)(*l);
  }
  bool comes(listener& l) {
    pollfd p{l.native_handle(), POLLIN, 0};
    return tensorpull::detail::poll_for(&p, 1, probe_.options.patience) > 0;
  }
  /// Connects, and waits until that is to be seen. None: the check has failed.
  std::optional<stream> reached(listener& l) {
    auto s = reach_(l);
    if (!s) report_.fail("nobody can connect: %s", to_string(s.error().code).data());
    else if (!comes(l)) report_.fail("a connection waits, and the descriptor is not readable");
    if (!report_.holds()) return std::nullopt;
    return std::move(*s);
  }
  bool is_nobody(const result<stream>& s) {
    if (!s && s.error().code == errc::timed_out) return true;
    report_.fail("no connection waits, and it returns %s", s ? "one" : to_string(s.error().code).data());
    return false;
  }

  void nobody(listener& l) {
    promptly("accept() without a connection", [&] { (void)l.accept(); });
    (void)is_nobody(l.accept());
  }
  void readable(listener& l) { (void)reached(l); }
  void carries(pair& c) {
    if (!made_ready(c)) return;
    const auto there = probe_.some_bytes(1000), back = probe_.some_bytes(1000);
    probe_.send(c.left, there);
    if (probe_.receive(c.right, there.size()) != there) return report_.fail("what was sent to it did not arrive");
    probe_.send(c.right, back);
    if (probe_.receive(c.left, back.size()) != back) report_.fail("what it sent did not arrive");
  }
  void once(listener& l) {
    const auto first = reached(l);
    if (!first) return;
    const auto one = l.accept();
    if (!one) return report_.fail("a connection waits, and it returns %s", to_string(one.error().code).data());
    (void)is_nobody(l.accept());
  }
  void scarce(listener& l) {
    const auto first = reached(l);
    if (!first) return;
    rlimit before{};
    const int next = ::fcntl(l.native_handle(), F_DUPFD_CLOEXEC, 0);
    if (next < 0 || ::getrlimit(RLIMIT_NOFILE, &before) != 0)
      return report_.skip("there are no descriptors to take away");
    ::close(next);
    rlimit none = before;
    none.rlim_cur = static_cast<rlim_t>(next);
    if (::setrlimit(RLIMIT_NOFILE, &none) != 0) return report_.skip("the limit on descriptors cannot be set");
    const auto without = l.accept();
    ::setrlimit(RLIMIT_NOFILE, &before);
    if (without || without.error().code != errc::out_of_memory)
      return report_.fail("no descriptor was left, and it returns %s",
                          without ? "a connection" : to_string(without.error().code).data());
    if (const auto later = l.accept(); !later)
      report_.fail("descriptors were there again, and it returns %s", to_string(later.error().code).data());
  }
  void move(listener& l) {
    listener moved = std::move(l);
    const auto first = reached(moved);
    if (!first) return;
    if (const auto one = moved.accept(); !one)
      report_.fail("a connection waits, and it returns %s", to_string(one.error().code).data());
  }
  void ends(listener& l) {
    const int descriptor = l.native_handle();
    {
      [[maybe_unused]] const listener gone = std::move(l);  // its destructor may be trivial
    }
    if (::fcntl(descriptor, F_GETFD) >= 0) report_.fail("its descriptor is still open");
  }
  void port(listener& l) {
    if constexpr (!requires { l.port(); }) report_.skip("there is none; it is optional");
    else if (l.port() == 0) report_.fail("it listens, and its port is 0");
  }

  Listen& listen_;
  Reach& reach_;
};

}  // namespace tensorpull::testing::detail
