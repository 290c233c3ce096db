// Two pipes, and a child's socket, as byte streams: every requirement, and what SIGPIPE does.
#include "child_program.hpp"
#include "support/allocation_counter.hpp"

#include <tensorpull/testing/conformance/transport_conformance.hpp>

#include <csignal>

namespace pipe_stream_test {

using namespace test;
using namespace tensorpull::testing;

const conformance_options strict{.allocations = &test::allocations_so_far};

tp::result<stream_pair<tp::pipe_stream>> two_pipes() {
  int there[2], back[2];
  if (::pipe2(there, O_CLOEXEC) != 0 || ::pipe2(back, O_CLOEXEC) != 0) return tp::failure(errc::connection_failed);
  return stream_pair<tp::pipe_stream>{tp::pipe_stream(back[0], there[1]), tp::pipe_stream(there[0], back[1])};
}

void expect_all(const conformance_report& r) {
  EXPECT_TRUE(r.passed());
  EXPECT_GE(r.count(check_result::passed), 33u);
  if (!r.passed()) r.print(stderr);
}

TEST(PipeStream, Q5_PipesKeepEveryRequirement) { expect_all(check_byte_stream(two_pipes, strict)); }

TEST(PipeStream, Q6_SigpipeIsHeldBackAndWhatWasPendingStays) {
  struct sigaction before{}, normal{};
  normal.sa_handler = SIG_DFL;
  ASSERT_EQ(::sigaction(SIGPIPE, &normal, &before), 0);
  const std::array<std::byte, 10> bytes{};
  {
    auto both = two_pipes();
    {
      const auto gone = std::move(both->right);
    }
    const auto io = write_some(both->left, bytes);
    EXPECT_EQ(io.status, tp::io_status::closed);
    EXPECT_EQ(io.system, EPIPE);
  }
  sigset_t pipes, now, mask;
  ::sigemptyset(&pipes);
  ::sigaddset(&pipes, SIGPIPE);
  ::sigpending(&now);
  EXPECT_FALSE(::sigismember(&now, SIGPIPE));
  ::pthread_sigmask(SIG_BLOCK, &pipes, &mask);
  {
    auto both = two_pipes();
    {
      const auto gone = std::move(both->right);
    }
    (void)write_some(both->left, bytes);
    ::sigpending(&now);
    EXPECT_FALSE(::sigismember(&now, SIGPIPE)) << "ours was taken back although the program blocks it";
    ::raise(SIGPIPE);
    (void)write_some(both->left, bytes);
    ::sigpending(&now);
    EXPECT_TRUE(::sigismember(&now, SIGPIPE)) << "this one is the program's";
  }
  int taken = 0;
  ::sigwait(&pipes, &taken);
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  ::sigaction(SIGPIPE, &before, nullptr);
}

TEST(PipeStream, The_flags_of_its_descriptors_come_back) {
  int fd[2];
  ASSERT_EQ(::pipe(fd), 0);
  const tp::detail::file_descriptor from(::dup(fd[0])), to(::dup(fd[1]));
  {
    const tp::pipe_stream s(fd[0], fd[1]);
    EXPECT_TRUE(::fcntl(from.get(), F_GETFL) & O_NONBLOCK);
    EXPECT_TRUE(::fcntl(to.get(), F_GETFL) & O_NONBLOCK);
  }
  EXPECT_FALSE(::fcntl(from.get(), F_GETFL) & O_NONBLOCK);
  EXPECT_FALSE(::fcntl(to.get(), F_GETFL) & O_NONBLOCK);
}

TEST(PipeStream, A_file_or_a_terminal_is_no_connection) {
  const tp::detail::file_descriptor before(::dup(STDIN_FILENO)), nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::dup2(nothing.get(), STDIN_FILENO), STDIN_FILENO);
  const auto made = tp::standard_streams::connect("-", 1s, {});
  ::dup2(before.get(), STDIN_FILENO);
  EXPECT_EQ(code_of(made), errc::bad_address);
  EXPECT_EQ(made.error().name.view(), "standard input");
  EXPECT_EQ(code_of(tp::standard_streams::connect("tcp", 1s, {})), errc::bad_address);
}

}  // namespace pipe_stream_test
