// Streams that are right pass every check; each stream that is broken in one way fails exactly the check that is about
// it.
#include "support/allocation_counter.hpp"
#include "support/waiting.hpp"

#include <tensorpull/testing/conformance/transport_conformance.hpp>
#include <tensorpull/transports/over/tcp/tcp_connect.hpp>

#include <gtest/gtest.h>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <string>

namespace transport_conformance_test {

using namespace tensorpull;
using namespace tensorpull::testing;
using namespace std::chrono_literals;

result<stream_pair<posix_stream>> socket_pair() {
  int fd[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) != 0)
    return failure(errc::connection_failed, 0, {}, errno);
  return stream_pair<posix_stream>{posix_stream(fd[0]), posix_stream(fd[1])};
}
/// Such a pair, each end in an S.
template <class S>
result<stream_pair<S>> pair_of() {
  auto both = socket_pair();
  if (!both) return failure(both.error());
  return stream_pair<S>{S(std::move(both->left)), S(std::move(both->right))};
}
result<stream_pair<posix_stream>> tcp_pair() {
  const posix_stream listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t n = sizeof a;
  const int fd = listener.native_handle();
  if (::bind(fd, reinterpret_cast<sockaddr*>(&a), n) != 0 || ::listen(fd, 1) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&a), &n) != 0)
    return failure(errc::connection_failed, 0, {}, errno);
  auto left = tcp_connect("127.0.0.1:" + std::to_string(ntohs(a.sin_port)), std::chrono::steady_clock::now() + 5s);
  if (!left) return failure(left.error());
  return stream_pair<posix_stream>{std::move(*left), posix_stream(::accept(fd, nullptr, nullptr))};
}
const conformance_options strict{.allocations = &test::allocations_so_far};

void expect_all(const conformance_report& r) {
  EXPECT_TRUE(r.passed());
  EXPECT_GE(r.count(check_result::passed), 35u);
  if (!r.passed()) r.print(stderr);
}
TEST(TransportConformance, Sockets_of_one_machine_keep_every_requirement) {
  expect_all(check_byte_stream(socket_pair, strict));
}
TEST(TransportConformance, Q6_TCP_keeps_every_requirement) { expect_all(check_byte_stream(tcp_pair, strict)); }
/// What is wrong with a stream.
enum class flaw {
  none,
  reads_backwards,
  reads_too_far,
  says_too_much_read,
  read_waits,
  reads_nothing_well,
  loses_the_rest,
  writes_backwards,
  says_too_much_written,
  write_waits,
  writes_to_nobody,
  never_readable,
  never_writable,
  always_readable,
  never_waits,
  answers_too_much,
  deaf_to_the_end,
  patient_read_is_blind,
  patient_read_is_hasty,
  forgets_when_moved,
  forgets_what_it_holds,
  stays_open,
  raises_signals,
  allocates,
};

/// posix_stream with one flaw.
template <flaw F>
class broken {
 public:
  explicit broken(posix_stream s) noexcept : s_(std::move(s)) {}
  broken(broken&& other) noexcept : s_(std::move(other.s_)) {
    if (F == flaw::forgets_what_it_holds) kept_ = other.kept_, ahead_ = std::exchange(other.ahead_, 0);
  }
  broken& operator=(broken&& other) noexcept {
    std::swap(s_, other.s_);
    if (F == flaw::forgets_what_it_holds) std::swap(kept_, other.kept_), std::swap(ahead_, other.ahead_);
    return *this;
  }
  ~broken() {
    if (F == flaw::stays_open) (void)s_.release();
  }

  io_result read_some(std::span<const std::span<std::byte>> spans) noexcept {
    if (F == flaw::allocates) {
      escaped() = new int(1);
      delete escaped();
    }
    if (F == flaw::loses_the_rest && peer_closed()) return {io_status::closed, 0, 0};
    if (F == flaw::reads_backwards && spans.size() > 1) {
      std::array<std::span<std::byte>, 32> turned;
      std::reverse_copy(spans.begin(), spans.end(), turned.begin());
      return s_.read_some({turned.data(), spans.size()});
    }
    if (reads_ahead && ahead_ > 0 && !spans.empty() && !spans[0].empty()) {
      spans[0][0] = kept_;
      ahead_ = 0;
      return {io_status::ok, 0, 1};
    }
    io_result io = s_.read_some(spans);
    if (reads_ahead && io.bytes > (F == flaw::forgets_when_moved ? 1u : 0u)) {  // reads one byte ahead
      const std::span<std::byte> one(&kept_, 1);
      ahead_ = s_.read_some({&one, 1}).bytes;
    }
    if (F == flaw::reads_too_far && io.bytes > 0) spans[0].data()[spans[0].size()] = std::byte{1};
    if (F == flaw::says_too_much_read && io.bytes > 0) ++io.bytes;
    if (F == flaw::read_waits && io.status == io_status::would_block) test::be_slow(60ms);
    if (F == flaw::reads_nothing_well && io.status == io_status::would_block) io.status = io_status::ok;
    return io;
  }
  io_result write_some(std::span<const std::span<const std::byte>> spans) noexcept {
    if (F == flaw::writes_backwards && spans.size() > 1) {
      std::array<std::span<const std::byte>, 64> turned;
      std::reverse_copy(spans.begin(), spans.end(), turned.begin());
      return s_.write_some({turned.data(), spans.size()});
    }
    if (F == flaw::raises_signals) {
      const ssize_t n = ::write(
          s_.native_handle(), spans[0].data(),
          spans[0].size() > 0 && ::fcntl(s_.native_handle(), F_SETFL, O_NONBLOCK) == 0 ? spans[0].size() : 0);
      return tensorpull::detail::io_outcome(n, false);
    }
    io_result io = s_.write_some(spans);
    if (F == flaw::says_too_much_written && io.bytes > 100) io.bytes = spans[0].size() + spans.size();
    if (F == flaw::write_waits && io.status == io_status::would_block) test::be_slow(60ms);
    if (F == flaw::writes_to_nobody && io.status == io_status::closed) return {io_status::would_block, 0, 0};
    return io;
  }
  io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    if (F == flaw::never_waits) timeout = 0ms;
    if (F == flaw::deaf_to_the_end && peer_closed()) {
      test::be_slow(timeout);
      return io_ready{};
    }
    if (ahead_ > 0 && read && F == flaw::forgets_when_moved) return {true, false};
    io_ready r = s_.wait(read, write, timeout);
    if (F == flaw::never_readable) r.read = false;
    if (F == flaw::never_writable) r.write = false;
    if (F == flaw::always_readable && read) r.read = true;
    if (F == flaw::answers_too_much && (r.read || r.write)) r = {true, true};
    return r;
  }
  io_result read_or_wait(std::span<const std::span<std::byte>> spans, std::chrono::milliseconds timeout) noexcept {
    if (F == flaw::patient_read_is_blind)
      return {io_status::would_block, 0, 0 * std::size_t(s_.wait(false, false, timeout).read)};
    if (F == flaw::patient_read_is_hasty) return s_.read_some(spans);
    return s_.read_or_wait(spans, timeout);
  }

 private:
  static constexpr bool reads_ahead = F == flaw::forgets_when_moved || F == flaw::forgets_what_it_holds;
  bool peer_closed() const noexcept {
    pollfd p{s_.native_handle(), POLLRDHUP, 0};
    return ::poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP)) != 0;
  }
  static int* volatile& escaped() noexcept {
    static int* volatile p = nullptr;
    return p;
  }
  posix_stream s_;
  std::byte kept_{};
  std::size_t ahead_ = 0;
};

template <flaw F>
void expect_only(std::string_view number) {
  const auto r = check_byte_stream(pair_of<broken<F>>, {.patience = 300ms, .allocations = &test::allocations_so_far});
  EXPECT_TRUE(number.empty() ? r.passed() : r.failed(number)) << number;
  EXPECT_EQ(r.count(check_result::failed), number.empty() ? 0u : 1u) << number;
  if (r.count(check_result::failed) != (number.empty() ? 0u : 1u) || (!number.empty() && !r.failed(number)))
    r.print(stderr);
}
TEST(TransportConformance, A_wrapper_without_a_flaw_passes) { expect_only<flaw::none>(""); }
TEST(TransportConformance, Each_flaw_of_reading_fails_its_own_check) {
  expect_only<flaw::reads_backwards>("1.1");
  expect_only<flaw::reads_too_far>("1.2");
  expect_only<flaw::says_too_much_read>("1.2");
  expect_only<flaw::read_waits>("1.3");
  expect_only<flaw::reads_nothing_well>("1.4");
  expect_only<flaw::loses_the_rest>("1.5");
}
TEST(TransportConformance, Each_flaw_of_writing_fails_its_own_check) {
  expect_only<flaw::writes_backwards>("2.1");
  expect_only<flaw::says_too_much_written>("2.2");
  expect_only<flaw::write_waits>("2.3");
  expect_only<flaw::writes_to_nobody>("2.4");
}
TEST(TransportConformance, Each_flaw_of_waiting_fails_its_own_check) {
  expect_only<flaw::never_readable>("3.1");
  expect_only<flaw::never_writable>("3.2");
  expect_only<flaw::always_readable>("3.3");
  expect_only<flaw::never_waits>("3.4");
  expect_only<flaw::answers_too_much>("3.5");
  expect_only<flaw::deaf_to_the_end>("3.6");
  expect_only<flaw::forgets_what_it_holds>("3.7");
  expect_only<flaw::patient_read_is_blind>("4.1");
  expect_only<flaw::patient_read_is_hasty>("4.2");
}
TEST(TransportConformance, Each_flaw_of_moving_and_ending_fails_its_own_check) {
  expect_only<flaw::forgets_when_moved>("5.1");
  expect_only<flaw::stays_open>("5.2");
  expect_only<flaw::raises_signals>("6.1");
  expect_only<flaw::allocates>("6.2");
}

/// Passes on to a socket what is written, and waits for it; what derives from it reads in its own way.
class on_socket {
 public:
  explicit on_socket(posix_stream s) noexcept : s_(std::move(s)) {}
  io_result write_some(std::span<const std::span<const std::byte>> spans) noexcept {
    written_ = true;
    return s_.write_some(spans);
  }
  io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    return s_.wait(read, write, timeout);
  }

 protected:
  posix_stream s_;
  bool written_ = false;
};

/// Damages what it carries after a while, and only if both directions are used: no check of single calls sees that, a
/// transfer does.
class late_damage : public on_socket {
 public:
  using on_socket::on_socket;
  io_result read_some(std::span<const std::span<std::byte>> spans) noexcept {
    const io_result io = s_.read_some(spans);
    carried_ += io.bytes;
    if (carried_ > 100'000 && written_ && io.bytes > 0 && !spans[0].empty()) spans[0][0] ^= std::byte{1};
    return io;
  }

 private:
  std::uint64_t carried_ = 0;
};
TEST(TransportConformance, Damage_that_only_a_transfer_meets_fails_the_transfers) {
  const auto r = check_byte_stream(pair_of<late_damage>, {.patience = 300ms});
  EXPECT_TRUE(r.failed("T1"));
}
/// A stream over which its peer sends a byte of its own first, as a TLS server sends session tickets: reading takes it
/// away and gives nothing.
class ticketed : public on_socket {
 public:
  using on_socket::on_socket;
  /// Sends the ticket to the other end.
  void greet() noexcept {
    const std::byte ticket{0x16};
    const std::span<const std::byte> all(&ticket, 1);
    (void)s_.write_some({&all, 1});
  }
  io_result read_some(std::span<const std::span<std::byte>> spans) noexcept {
    take_ticket();
    return s_.read_some(spans);
  }

 private:
  void take_ticket() noexcept {
    if (taken_) return;
    std::byte ticket;
    const std::span<std::byte> into(&ticket, 1);
    taken_ = s_.read_some({&into, 1}).bytes > 0;
  }
  bool taken_ = false;
};
TEST(TransportConformance, A_stream_whose_peer_sends_session_tickets_passes) {
  expect_all(check_byte_stream(
      []() -> result<stream_pair<ticketed>> {
        auto made = pair_of<ticketed>();
        if (made) made->left.greet(), made->right.greet();
        return made;
      },
      strict));
}

/// Raises SIGPIPE, but only after it has carried so much as no check of single calls does.
class late_signals : public on_socket {
 public:
  using on_socket::on_socket;
  io_result read_some(std::span<const std::span<std::byte>> spans) noexcept {
    const io_result io = s_.read_some(spans);
    if (io.bytes > 0 && written_ && (carried_ += io.bytes) > 100'000) ::raise(SIGPIPE);
    return io;
  }

 private:
  std::uint64_t carried_ = 0;
};
TEST(TransportConformance, A_signal_in_the_middle_of_a_transfer_is_a_line_and_not_the_end) {
  const auto r = check_byte_stream(pair_of<late_signals>);
  EXPECT_TRUE(r.failed("T15"));
  EXPECT_NE(r.find("T15")->explanation().find("SIGPIPE"), std::string_view::npos);
  EXPECT_EQ(r.count(check_result::failed), 1u);
}

/// What a connection has not read comes first on the next one.
class remembering : public on_socket {
 public:
  using on_socket::on_socket;
  remembering(remembering&&) noexcept = default;
  remembering& operator=(remembering&&) noexcept = default;
  ~remembering() {
    std::byte left[400];
    const std::span<std::byte> into(left);
    if (s_.native_handle() >= 0 && written_)
      if (const auto n = s_.read_some({&into, 1}).bytes; n > 300) kept() = std::to_integer<int>(left[n - 1]);
  }
  io_result read_some(std::span<const std::span<std::byte>> spans) noexcept {
    if (kept() >= 0 && !spans.empty() && !spans[0].empty() && written_) {
      spans[0][0] = static_cast<std::byte>(std::exchange(kept(), -1));
      return {io_status::ok, 0, 1};
    }
    return s_.read_some(spans);
  }

 private:
  static int& kept() noexcept {
    static int byte = -1;
    return byte;
  }
};
TEST(TransportConformance, A_stream_that_takes_a_byte_along_to_the_next_connection_cannot_go_on) {
  const auto r = check_byte_stream(pair_of<remembering>, {.patience = 300ms});
  EXPECT_TRUE(r.failed("T14"));
}

TEST(TransportConformance, A_factory_that_cannot_connect_fails_and_does_not_crash) {
  const auto r = check_byte_stream(
      []() -> result<stream_pair<posix_stream>> { return failure(errc::connection_failed); });
  EXPECT_FALSE(r.passed());
  EXPECT_NE(r.find("1.4")->explanation().find("connection"), std::string_view::npos);
}
TEST(TransportConformance, The_report_is_text_of_any_length) {
  conformance_report r;
  EXPECT_FALSE(r.passed()) << "nothing was checked";
  r.begin("1.1", "something");
  r.begin("1.2", "something else");
  r.fail("%d bytes", 3);
  r.fail("the first explanation stays");
  std::array<char, 200> text{};
  const std::size_t n = r.format(text);
  EXPECT_EQ(std::string_view(text.data(), n), "ok      1.1  something\nFAILED  1.2  something else: 3 bytes\n");
  std::array<char, 10> little{};
  EXPECT_EQ(r.format(little), n);
  EXPECT_EQ(std::string_view(little.data(), little.size()), "ok      1.");
  for (int i = 0; i < 100; ++i) r.begin("9", "more than it holds");
  EXPECT_EQ(r.checks().size(), conformance_report::capacity);
}

}  // namespace transport_conformance_test
