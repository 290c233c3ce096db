// A NATS server of a test's own: on loopback, on a free port, with a configuration of its own. It can be killed and
// started again.
#pragma once

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

namespace test {

/// Where nats-server is; empty: it is not installed.
inline std::string nats_program() {
  for (const char* at : {"/usr/sbin/nats-server", "/usr/bin/nats-server", "/usr/local/bin/nats-server"})
    if (::access(at, X_OK) == 0) return at;
  return {};
}

/// One server. Its port stays the same when it is started again.
class nats_process {
 public:
  /// `extra`: further lines of the configuration, such as `max_payload: 65536`.
  explicit nats_process(std::string_view extra = {}) : port_(free_port()) { start(extra); }
  nats_process(const nats_process&) = delete;
  nats_process& operator=(const nats_process&) = delete;
  ~nats_process() {
    kill();
    if (!config_.empty()) ::unlink(config_.c_str());
  }

  std::uint16_t port() const { return port_; }
  std::string url(std::string_view user = {}) const {
    return "nats://" + std::string(user) + (user.empty() ? "" : "@") + "127.0.0.1:" + std::to_string(port_);
  }

  /// Starts it and waits until it accepts connections.
  void start(std::string_view extra = {}) {
    if (config_.empty()) {
      char name[] = "/tmp/tensorpull-nats-XXXXXX";
      const int file = ::mkstemp(name);
      ASSERT_GE(file, 0);
      ::close(file);
      config_ = name;
    }
    std::ofstream(config_) << "listen: \"127.0.0.1:" << port_ << "\"\nlogfile: \"/dev/null\"\n" << extra << "\n";
    const std::string program = nats_program();
    child_ = ::fork();
    ASSERT_GE(child_, 0);
    if (child_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // it does not outlive a test that crashes
      ::execl(program.c_str(), program.c_str(), "-c", config_.c_str(), static_cast<char*>(nullptr));
      ::_exit(127);
    }
    for (int i = 0; i < 2000; ++i) {
      if (accepts()) return;
      ASSERT_EQ(::waitpid(child_, nullptr, WNOHANG), 0) << "nats-server ended: is its configuration right?";
      ::poll(nullptr, 0, 5);
    }
    FAIL() << "nats-server does not listen";
  }
  /// Ends it at once.
  void kill() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = -1;
  }
  /// Stops it without ending it, and lets it go on. A signal is sent before it arrives: only when all of its threads
  /// have stopped is it sure that it answers nothing any more.
  void freeze() const {
    ::kill(child_, SIGSTOP);
    ASSERT_EQ(::waitpid(child_, nullptr, WUNTRACED), child_);
  }
  void thaw() const { ::kill(child_, SIGCONT); }

 private:
  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(port);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
  }
  static std::uint16_t free_port() {
    const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in a = loopback(0);
    socklen_t size = sizeof a;
    const bool bound = ::bind(s, reinterpret_cast<const sockaddr*>(&a), size) == 0 &&
                       ::getsockname(s, reinterpret_cast<sockaddr*>(&a), &size) == 0;
    ::close(s);
    return bound ? ntohs(a.sin_port) : std::uint16_t{0};
  }
  bool accepts() const {
    const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in a = loopback(port_);
    const bool ok = ::connect(s, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0;
    ::close(s);
    return ok;
  }

  std::uint16_t port_;
  std::string config_;
  pid_t child_ = -1;
};

/// Tests that need a server. They are skipped if none is installed.
class nats_test : public ::testing::Test {
 protected:
  void SetUp() override {
    if (nats_program().empty())
      GTEST_SKIP() << "nats-server is not installed (Debian's package nats-server): no test of the transport nats runs";
  }
};

}  // namespace test
