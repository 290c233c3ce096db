// A NATS server of a test's own: on loopback, on a free port, with a configuration of its own. It can be killed and
// started again.
#pragma once

#include "support/child_process.hpp"
#include "support/own_folder.hpp"
#include "support/own_port.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <optional>
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
  explicit nats_process(std::string_view extra = {}) { start(extra); }

  std::uint16_t port() const { return port_; }
  std::string url(std::string_view user = {}) const {
    return "nats://" + std::string(user) + (user.empty() ? "" : "@") + "127.0.0.1:" + std::to_string(port_);
  }

  /// Starts it and waits until it accepts connections.
  void start(std::string_view extra = {}) {
    const std::string config = folder_ / "config", program = nats_program();
    std::ofstream(config) << "listen: \"127.0.0.1:" << port_ << "\"\nlogfile: \"/dev/null\"\n" << extra << "\n";
    const char* const command[]{program.c_str(), "-c", config.c_str(), nullptr};
    child_.emplace(command);
    EXPECT_TRUE(eventually("nats-server listens", [&] { return child_->ended() || accepts(); }));
    EXPECT_FALSE(child_->ended()) << "nats-server ended: is its configuration right?";
  }
  /// Ends it at once.
  void kill() { child_.reset(); }
  /// Stops it without ending it, and lets it go on. A signal is sent before it arrives: only when all of its threads
  /// have stopped is it sure that it answers nothing any more.
  void freeze() const {
    child_->signal(SIGSTOP);
    EXPECT_TRUE(eventually("all threads of nats-server have stopped", [&] { return child_->stopped(); }));
  }
  void thaw() const { child_->signal(SIGCONT); }

 private:
  bool accepts() const {
    const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET, a.sin_port = htons(port_), a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool ok = ::connect(s, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0;
    ::close(s);
    return ok;
  }

  own_port port_;
  own_folder folder_;
  std::optional<child_process> child_;
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
