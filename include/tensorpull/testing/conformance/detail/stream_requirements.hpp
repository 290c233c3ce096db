// The numbered requirements of a byte stream (transports/concept.hpp), one check for each part of each.
#pragma once

#include <tensorpull/testing/conformance/detail/stream_end_checks.hpp>
#include <tensorpull/testing/conformance/detail/stream_io_checks.hpp>
#include <tensorpull/testing/conformance/stream_probe.hpp>
#include <tensorpull/testing/conformance/detail/stream_wait_checks.hpp>

#include <csignal>
#include <utility>

namespace tensorpull::testing {

/// Counts SIGPIPE while it lives; nothing where there is no such signal.
class pipe_signals {
 public:
  pipe_signals() noexcept {
#ifdef SIGPIPE
    count() = 0;
    before_ = std::signal(SIGPIPE, [](int) { count() = count() + 1; });
#endif
  }
  pipe_signals(const pipe_signals&) = delete;
  pipe_signals& operator=(const pipe_signals&) = delete;
  ~pipe_signals() {
#ifdef SIGPIPE
    std::signal(SIGPIPE, before_);
#endif
  }
  static volatile std::sig_atomic_t& count() noexcept {
    static volatile std::sig_atomic_t n = 0;
    return n;
  }

 private:
  void (*before_)(int) = nullptr;
};

/// A check that rests on another one is skipped where that one failed, so that one fault is one failure.
template <class Connect>
class stream_requirements {
  using probe = stream_probe<Connect>;
 public:
  explicit stream_requirements(probe& p) noexcept : p_(p), report_(p.report), io_{p, p.report}, wait_{p, p.report}, end_{p, p.report} {}

  void run() {
    check("1.4", "0 bytes are read only with would_block or closed", {}, [this](auto& c) { io_.idle_status(c.left); });
    check("1.2", "a read stays within its spans and says how much it read", {}, [this](auto& c) { io_.read_bounds(c); });
    check("2.2", "what a write says it took is what arrives", {"1.2"}, [this](auto& c) { io_.written_count(c); });
    check("1.1", "a read fills its spans in order", {"1.2", "2.2"}, [this](auto& c) { io_.read_order(c); });
    check("2.1", "a write takes its spans in order", {"1.2", "2.2"}, [this](auto& c) { io_.write_order(c); });
    check("1.3", "a read never waits", {}, [this](auto& c) { io_.read_promptly(c.left); });
    check("2.3", "a write never waits, also when the peer does not read", {}, [this](auto& c) { io_.write_promptly(c.left); });
    check("3.1", "wait() ends when bytes can be read", {}, [this](auto& c) { wait_.wait_for_bytes(c); });
    check("3.2", "wait() ends when bytes can be written", {}, [this](auto& c) { wait_.wait_for_room(c.left); });
    check("3.3", "wait() says nothing where nothing can be read", {}, [this](auto& c) { wait_.wait_idle(c.left); });
    check("3.4", "wait() lasts about as long as it may", {"3.3"}, [this](auto& c) { wait_.wait_long(c.left); });
    check("3.5", "wait() answers only what it was asked", {}, [this](auto& c) { wait_.wait_as_asked(c); });
    check("4.1", "read_or_wait() reads what is there", {"1.2"}, [this](auto& c) { wait_.patient_read(c); });
    check("4.2", "read_or_wait() waits about as long as it may", {"1.4"}, [this](auto& c) { wait_.patient_wait(c.left); });
    check("5.1", "a moved stream goes on where it was", {"1.2", "2.2"}, [this](auto& c) { end_.move(c); });
    check("5.2", "the destructor closes, and the peer reads that", {"1.4"}, [this](auto& c) { end_.closes(c); });
    check("1.5", "what was written before the end is read before `closed`", {"1.2", "5.2"}, [this](auto& c) { end_.drains(c); });
    check("3.6", "wait() ends when the peer has closed", {"3.1", "5.2"}, [this](auto& c) { wait_.wait_for_end(c); });
    pipe_signals signals;
    check("2.4", "writing to a peer that is gone ends with closed or failed", {"5.2"}, [this](auto& c) { end_.peer_gone(c); });
    check("6.1", "no call raises a signal", {"5.2"}, [](auto&) {});
    if (pipe_signals::count() > 0) report_.fail("SIGPIPE came %d times: send with MSG_NOSIGNAL, or ignore it for this descriptor", static_cast<int>(pipe_signals::count()));
    check("6.2", "no call allocates", {"1.2"}, [this](auto& c) { end_.allocates(c); });
  }

 private:
  template <class F>
  void check(std::string_view number, std::string_view what, std::initializer_list<std::string_view> rests_on, F f) {
    report_.begin(number, what);
    for (const std::string_view n : rests_on)
      if (const auto* const c = report_.find(n); c == nullptr || c->result != check_result::passed)
        return report_.skip("it rests on %.*s", static_cast<int>(n.size()), n.data());
    if (auto c = p_.connect()) f(*c);
  }

  probe& p_;
  conformance_report& report_;
  stream_io_checks<probe> io_;
  stream_wait_checks<probe> wait_;
  stream_end_checks<probe> end_;
};

}  // namespace tensorpull::testing
