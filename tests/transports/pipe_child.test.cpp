// A child process as a transport: pulls, sessions, and what children do wrong.
#include "child_program.hpp"

#include <tensorpull/core/describe.hpp>

#include <sys/wait.h>

#include <csignal>

namespace pipe_child_test {

using namespace test;

const tp::reference wanted{child_ref, 0, 0};
const tp::pull_options once{.per_request_timeout = 100s, .retry = {.retries = 0}};

/// Whether this process has no child, dead or alive.
bool no_children() { return ::waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD; }

struct flag_token {
  const std::atomic<bool>* flag;
  bool stop_requested() const noexcept { return flag->load(); }
};

TEST(PipeChild, Q4_AModelComesFromAChildAndNothingIsLeft) {
  const std::size_t files = descriptors();
  const auto mine = blank<mlp>();
  const auto done = over_child::download_tensors(child_command("serve"), wanted, *mine);
  ASSERT_TRUE(confirmed(done));
  EXPECT_TRUE(same(*mine, *random_model<mlp>(child_seed)));
  EXPECT_TRUE(no_children());
  EXPECT_EQ(descriptors(), files);
}

TEST(PipeChild, Other_bytes_never_complete_for_a_recipient_that_was_given_the_version) {
  const auto mine = blank<mlp>();
  const auto believed = over_child::download_tensors(child_command("serve"), child_ref, *mine, once);
  ASSERT_TRUE(succeeded(believed));
  EXPECT_TRUE(believed->believed);
  const auto known = over_child::download_tensors(child_command("serve"), {child_ref, believed->version, 0}, *mine,
                                                  once);
  ASSERT_TRUE(succeeded(known));
  EXPECT_FALSE(known->believed);
  const tp::reference other{child_ref, 12345, 0};
  EXPECT_EQ(code_of(over_child::download_tensors(child_command("serve"), other, *mine, once)), errc::stale_version);
  EXPECT_EQ(code_of(over_child::download_tensors(child_command("claim 12345"), other, *mine, once)),
            errc::digest_mismatch);
}

TEST(PipeChild, A_session_pulls_again_and_again) {
  {
    auto child = over_child::session::connect(child_command("serve"));
    ASSERT_TRUE(child);
    for (int i = 0; i < 3; ++i) {
      const auto mine = blank<mlp>();
      const auto done = child->download_tensors(wanted, *mine);
      ASSERT_TRUE(succeeded(done));
      EXPECT_TRUE(same(*mine, *random_model<mlp>(child_seed)));
    }
  }
  EXPECT_TRUE(no_children());
}

TEST(PipeChild, T4_AChildThatIsKilledIsALostConnectionWithItsStatus) {
  const auto mine = blank<mlp>();
  const auto done = over_child::download_tensors(child_command("die 100000"), wanted, *mine, once);
  ASSERT_EQ(code_of(done), errc::connection_lost);
  EXPECT_EQ(done.error().system, -(128 + SIGKILL));
  EXPECT_GT(done.error().at, 0u) << "some bytes had landed";
  EXPECT_TRUE(no_children());
  const auto other = over_child::download_tensors(child_command("exit 3"), wanted, *mine, once);
  ASSERT_EQ(code_of(other), errc::connection_lost);
  EXPECT_EQ(other.error().system, -3);
}

TEST(PipeChild, C2_AChildThatWithdrawsItsModelSaysSoAndWhy) {
  const auto mine = blank<mlp>();
  auto options = once;
  options.window = 1;
  const auto done = over_child::download_tensors(child_command("withdraw 100000"), wanted, *mine, options);
  ASSERT_EQ(code_of(done), errc::withdrawn);
  EXPECT_EQ(done.error().system, 7);
  EXPECT_GE(done.error().at, 100'000u);
  EXPECT_TRUE(no_children());
}

TEST(PipeChild, Q4_AChildThatLeavesItsProcessGroupIsEndedToo) {
  const char* const words[] = {
      "python3", "-c", "import os, time; os.setpgid(0, os.getpgid(os.getppid())); os.write(1, b'x'); time.sleep(20)"};
  pid_t child = 0;
  {
    auto stream = tp::child_stream::start(words);
    ASSERT_TRUE(stream);
    child = stream->process();
    std::byte one;
    const byte_span in[] = {{&one, 1}};
    ASSERT_TRUE(stream->wait(true, false, 10s).read);
    ASSERT_EQ(stream->read_some(in).bytes, 1u);
  }
  EXPECT_EQ(::kill(child, SIGKILL), -1) << "it is left";
}

TEST(PipeChild, T4_AChildThatEndsIsStartedAgainAndThePullGoesOn) {
  const auto mine = blank<mlp>();
  // each child kills itself a little later; what has landed stays
  const std::string command = "sh -c 'exec \"$0\" --as-child die 150000' /proc/" + std::to_string(::getpid()) + "/exe";
  const auto done = over_child::download_tensors(command, wanted, *mine, {.retry = {.retries = 8, .first_delay = 1ms}});
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*mine, *random_model<mlp>(child_seed)));
  EXPECT_TRUE(no_children());
}

TEST(PipeChild, A_session_says_the_status_too) {
  auto child = over_child::session::connect("sh -c 'exit 7'");
  ASSERT_TRUE(child);
  const auto got = child->receive(10s);
  ASSERT_EQ(code_of(got), errc::connection_lost);
  EXPECT_EQ(got.error().system, -7);
}

TEST(PipeChild, F16_AChildThatSaysSomethingElseIsRefused) {
  const auto mine = blank<mlp>();
  generator(5).fill(std::as_writable_bytes(std::span(mine.get(), 1)));
  for (const char* const command : {"yes", "sh -c 'echo Welcome to this machine; exec cat'", "cat /dev/zero",
                                    "sh -c 'exec head -c 100000 /dev/urandom'"}) {
    const auto done = over_child::download_tensors(command, wanted, *mine, once);
    ASSERT_FALSE(done) << command;
    EXPECT_EQ(done.error().at, 0u) << command;
    EXPECT_TRUE(no_children()) << command;
  }
  EXPECT_TRUE(same(*mine, [] {
    mlp m;
    generator(5).fill(std::as_writable_bytes(std::span(&m, 1)));
    return m;
  }()));
}

TEST(PipeChild, A_child_that_says_back_what_it_hears_is_no_owner) {
  const auto mine = blank<mlp>();
  const auto done = over_child::download_tensors("cat", wanted, *mine,
                                                 {.per_request_timeout = 200ms, .retry = {.retries = 0}});
  EXPECT_EQ(code_of(done), errc::timed_out);
}

TEST(PipeChild, A_command_that_cannot_be_run_is_a_bad_address_at_once) {
  const auto mine = blank<mlp>();
  for (const auto& [command, system] :
       {std::pair{"/nowhere/send", ENOENT}, std::pair{"no-such-program-in-the-path", ENOENT},
        std::pair{"/etc/passwd", EACCES}, std::pair{"/tmp", EACCES}}) {
    const auto done = over_child::download_tensors(command, wanted, *mine, {.retry = {.retries = 1000}});
    ASSERT_EQ(code_of(done), errc::bad_address) << command;
    EXPECT_EQ(done.error().system, system) << command;
    EXPECT_EQ(done.error().name.view(), command);
  }
  for (const char* const command : {"", "  ", "send 'x", "send \\"}) {
    const auto done = over_child::download_tensors(command, wanted, *mine, {.retry = {.retries = 1000}});
    EXPECT_EQ(code_of(done), errc::bad_address) << command;
  }
  EXPECT_TRUE(no_children());
}

TEST(PipeChild, Q6_SigpipeEndsNeitherAPullNorASession) {
  struct sigaction before{}, normal{};
  normal.sa_handler = SIG_DFL;
  ASSERT_EQ(::sigaction(SIGPIPE, &normal, &before), 0);
  {
    auto child = over_child::session::connect("sh -c 'exec 0<&- 1>&-; sleep 0.01'");
    ASSERT_TRUE(child);
    const byte_vector body(60'000);
    for (int i = 0; i < 100; ++i)
      if (!child->send(1, {}, body, 1s)) break;
    const auto mine = blank<mlp>();
    EXPECT_FALSE(child->download_tensors(wanted, *mine, once));
  }
  struct sigaction now{};
  ::sigaction(SIGPIPE, &before, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL) << "nobody has changed it";
}

TEST(PipeChild, T8_AStopIsHeardAlthoughTheChildDoesNotEnd) {
  std::atomic<bool> stop{false};
  const auto mine = blank<mlp>();
  // it ignores the end of its input, and SIGTERM
  joined_thread later([&] { be_slow(300ms), stop = true; });
  const auto done = over_child::download_tensors("sh -c 'trap \"\" TERM; while :; do sleep 0.2; done'", wanted, *mine,
                                                 {.stop = flag_token{&stop}, .retry = {.retries = 0}});
  EXPECT_EQ(code_of(done), errc::cancelled);
  EXPECT_TRUE(no_children());
}

TEST(PipeChild, A_child_that_ignores_its_end_gets_signals) {
  for (const char* const command : {"exec sleep 100", "trap '' TERM; exec sleep 100"}) {
    const char* const words[]{"sh", "-c", command};
    auto child = tp::child_stream::start(words);
    ASSERT_TRUE(child);
    const pid_t process = child->process();
    {
      const auto gone = std::move(*child);
    }
    EXPECT_EQ(::kill(process, 0), -1) << command;
    EXPECT_TRUE(no_children());
  }
}

TEST(PipeChild, A_child_has_three_descriptors_and_no_blocked_signals) {
  const int forgotten = ::open("/dev/null", O_RDONLY);  // not marked to be closed
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const char* const words[]{
      "sh", "-c",
      "ls /proc/self/fd | tr '\\n' ' '; grep -E 'Sig(Blk|Ign)' /proc/self/status | tr -d '\\t\\n'; ps -o pgid= -p $$ | tr -d ' \\n' >/dev/null"};
  auto child = tp::child_stream::start(words);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ASSERT_TRUE(child);
  EXPECT_EQ(::getpgid(child->process()), child->process());
  std::string said;
  for (const auto end = within(ample_time); !end.stop_requested();) {
    std::array<std::byte, 256> piece;
    const std::array<byte_span, 1> in{piece};
    const auto io = child->read_or_wait(in, 1s);
    said.append(reinterpret_cast<const char*>(piece.data()), io.bytes);
    if (io.status == tp::io_status::closed) {
      EXPECT_EQ(io.system, 0);
      break;
    }
  }
  ::close(forgotten);
  EXPECT_TRUE(said.starts_with("0 1 2 3 SigBlk:0000000000000000")) << said << ": 3 is the folder that ls reads";
  EXPECT_EQ(child->process(), 0);
}

}  // namespace pipe_child_test
