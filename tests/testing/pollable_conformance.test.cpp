// Pollable streams and listeners that are right pass every check; each that is broken in one way fails the check that
// is about it, and no other.
#include <tensorpull/links/posix/posix_stream.hpp>
#include <tensorpull/testing/conformance/pollable_conformance.hpp>
#include <tensorpull/transports/over/tcp/tcp_connect.hpp>
#include <tensorpull/transports/over/tcp/tcp_listener.hpp>

#include <gtest/gtest.h>

#include <sys/socket.h>

#include <list>
#include <string>

namespace pollable_conformance_test {

using namespace tensorpull;
using namespace tensorpull::testing;
using namespace std::chrono_literals;

enum class flaw {
  none,
  another_descriptor,
  never_ready,
  always_ready,
  keeps_bytes,
  never_established,
  waits_for_nothing,
  forgets_that_it_was,
  no_interest,
  stays_open
};

/// A socket that has to say hello and hear it, and that may be broken in one way.
template <flaw F>
class broken {
 public:
  explicit broken(posix_stream s) : s_(std::move(s)) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0)
      other_ = posix_stream(ends[0]), peer_ = posix_stream(ends[1]);
    const std::byte one{1};
    const std::span<const std::byte> out(&one, 1);
    if (F == flaw::always_ready) (void)peer_.write_some({&out, 1});
  }
  broken(broken&&) noexcept = default;
  broken& operator=(broken&&) noexcept = default;
  ~broken() {
    if (F == flaw::stays_open && s_.native_handle() >= 0) (void)s_.release();
  }
  int native_handle() const noexcept {
    if (F == flaw::never_ready || F == flaw::always_ready) return other_.native_handle();
    if (F == flaw::another_descriptor && moved_ > 0) return other_.native_handle();
    return s_.native_handle();
  }
  io_result read_some(std::span<const std::span<std::byte>> spans) noexcept {
    io_result io = s_.read_some(spans);
    if (F == flaw::keeps_bytes && io.bytes > 1) {
      // as one that reads a whole record, and gives its last byte out with the next call
      kept_ = spans[0][io.bytes - 1], keeps_ = true;
      --io.bytes;
    } else if (F == flaw::keeps_bytes && keeps_ && io.bytes == 0) {
      spans[0][0] = kept_, keeps_ = false;
      io = {io_status::ok, 0, 1};
    }
    moved_ += io.bytes;
    return io;
  }
  io_result write_some(std::span<const std::span<const std::byte>> spans) noexcept { return s_.write_some(spans); }
  io_ready wait(bool r, bool w, std::chrono::milliseconds t) noexcept { return s_.wait(r, w, t); }
  establishment establish() noexcept {
    if (F == flaw::never_established) return {io_status::would_block, 0, {true, false}};
    if (F == flaw::forgets_that_it_was && established_) return {io_status::would_block, 0, {true, false}};
    if (F == flaw::waits_for_nothing && calls_++ == 0) return {io_status::would_block, 0, {}};
    established_ = true;
    return {};
  }
  io_ready interest(io_ready wanted) const noexcept { return F == flaw::no_interest ? io_ready{} : wanted; }

 private:
  posix_stream s_, other_, peer_;
  std::size_t moved_ = 0;
  int calls_ = 0;
  std::byte kept_{};
  bool keeps_ = false, established_ = false;
};

template <class S>
result<stream_pair<S>> pair_of() {
  int fd[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) != 0)
    return failure(errc::connection_failed, 0, {}, errno);
  return stream_pair<S>{S(posix_stream(fd[0])), S(posix_stream(fd[1]))};
}
const conformance_options hasty{.patience = 300ms};

void expect_only(const conformance_report& r, std::string_view number) {
  EXPECT_EQ(r.count(check_result::failed), number.empty() ? 0u : 1u) << number;
  EXPECT_TRUE(number.empty() ? r.passed() : r.failed(number)) << number;
  if (::testing::Test::HasFailure()) r.print(stderr);
}
template <flaw F>
void expect_of_stream(std::string_view number) {
  expect_only(check_pollable_stream(pair_of<broken<F>>, hasty), number);
}

TEST(PollableConformance, Streams_that_are_right_pass) {
  expect_only(check_pollable_stream(pair_of<posix_stream>), "");
  expect_only(check_pollable_stream(pair_of<broken<flaw::none>>), "");
}
TEST(PollableConformance, Each_flaw_fails_its_own_check) {
  expect_of_stream<flaw::another_descriptor>("2.1");
  expect_of_stream<flaw::stays_open>("2.1");
  expect_of_stream<flaw::always_ready>("2.3");
  expect_of_stream<flaw::keeps_bytes>("3.1");
  expect_of_stream<flaw::never_established>("4.1");
  expect_of_stream<flaw::waits_for_nothing>("4.1");
  expect_of_stream<flaw::forgets_that_it_was>("4.2");
  const auto deaf = check_pollable_stream(pair_of<broken<flaw::never_ready>>, hasty);
  EXPECT_TRUE(deaf.failed("2.2"));
  EXPECT_TRUE(check_pollable_stream(pair_of<broken<flaw::no_interest>>, hasty).failed("5.1"));
}

enum class fault {
  none,
  waits,
  hides_why,
  accepts_nobody_twice,
  no_port
};
template <fault F>
class broken_listener {
 public:
  explicit broken_listener(tcp_listener l) : l_(std::move(l)) {}
  int native_handle() const noexcept { return l_.native_handle(); }
  std::uint16_t port() const noexcept { return F == fault::no_port ? 0 : l_.port(); }
  std::uint16_t real_port() const noexcept { return l_.port(); }
  result<posix_stream> accept() noexcept {
    if (F == fault::waits) return l_.accept(80ms);
    auto s = l_.accept();
    if (s) accepted_ = true;
    else if (F == fault::hides_why && s.error().code == errc::out_of_memory) return failure(errc::connection_failed);
    else if (F == fault::accepts_nobody_twice && accepted_) return failure(errc::connection_failed);
    return s;
  }

 private:
  tcp_listener l_;
  bool accepted_ = false;
};
template <fault F>
void expect_of_listener(std::string_view number) {
  const auto listen = []() -> result<broken_listener<F>> {
    auto l = tcp_listener::open("127.0.0.1:0");
    if (!l) return failure(l.error());
    return broken_listener<F>(std::move(*l));
  };
  const auto reach = [](broken_listener<F>& l) {
    return tcp_connect("127.0.0.1:" + std::to_string(l.real_port()), std::chrono::steady_clock::now() + 5s);
  };
  expect_only(check_stream_listener(listen, reach, {.patience = 2s}), number);
}

TEST(PollableConformance, Listeners_that_are_right_pass_and_each_fault_fails_its_own_check) {
  expect_of_listener<fault::none>("");
  expect_of_listener<fault::waits>("1.1");
  expect_of_listener<fault::accepts_nobody_twice>("1.3");
  expect_of_listener<fault::hides_why>("1.4");
  expect_of_listener<fault::no_port>("4.1");
}

/// A listener that only borrows, so its end closes nothing.
struct borrowed_listener {
  tcp_listener* l;
  int native_handle() const noexcept { return l->native_handle(); }
  result<posix_stream> accept() noexcept { return l->accept(); }
};
TEST(PollableConformance, A_listener_whose_destructor_closes_nothing_fails_the_check_of_that) {
  std::list<tcp_listener> open;
  const auto listen = [&]() -> result<borrowed_listener> {
    auto l = tcp_listener::open("127.0.0.1:0");
    if (!l) return failure(l.error());
    return borrowed_listener{&open.emplace_back(std::move(*l))};
  };
  const auto reach = [](borrowed_listener& b) {
    return tcp_connect("127.0.0.1:" + std::to_string(b.l->port()), std::chrono::steady_clock::now() + 5s);
  };
  expect_only(check_stream_listener(listen, reach, {.patience = 2s}), "3.2");
}

}  // namespace pollable_conformance_test
