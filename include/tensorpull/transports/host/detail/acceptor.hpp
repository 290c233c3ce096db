// Takes connections from a listener for a host.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/std/optional.hpp>
#include <tensorpull/transports/host/event_loop.hpp>

#include <atomic>
#include <cerrno>
#include <utility>

namespace tensorpull::detail {

/// How often a host of this process could not take a connection, for lack of a descriptor or of memory.
inline std::atomic<std::uint32_t> connections_missed{0};

/// The error of a descriptor that the loop cannot watch, by its errno.
inline error not_watched(int failed, const error_name& name) noexcept {
  return {failed == ENOMEM ? errc::out_of_memory : errc::io, failed, 0, name};
}

/// Accepts as long as there is room and a descriptor for another connection; otherwise it pauses until it is told to
/// look again. `Host` has `full()`, `begin(stream)` and `stopped()`.
template <class Host, class Listener>
class acceptor : public event_target {
 public:
  acceptor(event_loop& on, Host& to) noexcept : event_target(on), host_(to) {}

  /// Whether there is a listener.
  bool listens() const noexcept { return listening_; }
  /// Starts with this one. Gives its port; 0 if it has none. Errors: out_of_memory; io: the loop cannot watch it.
  result<std::uint16_t> listen(Listener&& listener, const error_name& address) noexcept {
    if (const int failed = watch(listener.native_handle()); failed != 0) return failure(not_watched(failed, address));
    listener_.emplace(std::move(listener));
    listening_ = true;
    look_again();
    if constexpr (requires { listener_->port(); }) return listener_->port();
    else return std::uint16_t{0};
  }
  /// There may be room again. On any thread.
  void look_again() noexcept { post(own); }
  /// Closes the listener, then calls `host.stopped()`. On any thread.
  void stop() noexcept { post(stopping); }

  /// The resources that a host was short of since the last call. All hosts of a process draw on the same number of
  /// descriptors.
  struct shortage {
    bool here = false;  ///< somebody waits for room among the connections
    bool elsewhere = false;  ///< another host had no descriptor
  };
  shortage take_shortage() noexcept {
    const std::uint32_t others = missed_by_others();
    return {crowded_.exchange(false), std::exchange(missed_by_others_, others) != others};
  }

 private:
  static constexpr std::uint32_t stopping = 2 * own;

  void happened(std::uint32_t what) noexcept override {
    if ((what & stopping) != 0) {
      unwatch();
      listener_.reset();
      listening_ = false;
      host_.stopped();
    } else if (listening_ && ((what & readable) == 0 || accept_more())) wait({true, false});
  }
  /// False: no room, memory or descriptor is left for another connection, so that the loop must not spin.
  bool accept_more() noexcept {
    for (int i = 0; i < 64; ++i) {
      if (host_.full()) {
        crowded_ = crowded_ || others_wait(listener_->native_handle());
        return false;
      }
      auto stream = listener_->accept();
      if (!stream) {
        if (stream.error().code != errc::out_of_memory) return true;
        crowded_ = true;
        missed_.fetch_add(1, std::memory_order_relaxed);
        connections_missed.fetch_add(1, std::memory_order_relaxed);
        return false;
      }
      if (!host_.begin(*stream, 0)) return false;
    }
    return true;
  }
  std::uint32_t missed_by_others() const noexcept {
    return connections_missed.load(std::memory_order_relaxed) - missed_.load(std::memory_order_relaxed);
  }

  Host& host_;
  maybe<Listener> listener_;
  std::atomic<bool> listening_{false}, crowded_{false};
  std::atomic<std::uint32_t> missed_{0};  // this host's part of connections_missed
  std::uint32_t missed_by_others_ = missed_by_others();
};

}  // namespace tensorpull::detail
