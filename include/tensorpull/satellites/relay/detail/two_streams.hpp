// A wait for either of two streams, and the rate at which one of them is sent bytes.
#pragma once

#include <tensorpull/links/byte_stream.hpp>
#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/chrono.hpp>
#include <tensorpull/transports/send_limiter.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull::detail {

/// The directions that a stream has to wait for. One that encrypts may have to write before it can read.
template <byte_stream Stream>
io_ready interest_of(const Stream& stream, io_ready wanted) noexcept {
  if constexpr (requires { stream.interest(wanted); }) return stream.interest(wanted);
  else return wanted;
}

/// Waits until either stream can continue. Streams with descriptors are polled together, others in turn for 1 ms each.
template <byte_stream A, byte_stream B>
void wait_for_either(A& a, io_ready of_a, B& b, io_ready of_b, std::chrono::milliseconds timeout) noexcept {
  if constexpr (requires { a.native_handle(), b.native_handle(); }) {
    pollfd both[2] = {polled(a.native_handle(), interest_of(a, of_a)), polled(b.native_handle(), interest_of(b, of_b))};
    (void)poll_for(both, 2, timeout);
  } else {
    constexpr std::chrono::milliseconds turn{1};
    const auto ready = a.wait(of_a.read, of_a.write, turn);
    if (!ready.read && !ready.write) b.wait(of_b.read, of_b.write, turn);
  }
}

/// The rate at which one recipient is sent.
class relay_pace {
  using limiter_type = send_limiter<>;

 public:
  explicit relay_pace(std::uint64_t bytes_per_second) noexcept : limiter_({0, bytes_per_second}) {}
  relay_pace(const relay_pace&) = delete;
  relay_pace& operator=(const relay_pace&) = delete;

  /// Shortens the spans to what may be sent now, and gives how many are left; 0: the limit is reached (held_back()).
  std::size_t shorten(std::span<std::span<const std::byte>> out) noexcept {
    if (!limiter_.limited()) return out.size();
    std::uint64_t wanted = 0;
    for (const auto& s : out) wanted += s.size();
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    if (limiter_.waits(share_)) (void)limiter_.tick(now, [](limiter_type::share&) noexcept {});
    std::uint64_t left = taken_ = limiter_.take(share_, wanted, now);
    std::size_t n = 0;
    for (; n < out.size() && left > 0; ++n) {
      out[n] = out[n].first(static_cast<std::size_t>(std::min<std::uint64_t>(out[n].size(), left)));
      left -= out[n].size();
    }
    return n;
  }
  /// So many bytes of these spans were sent.
  void sent(std::uint64_t bytes) noexcept {
    if (limiter_.limited()) limiter_.put_back(share_, taken_ - bytes);
  }
  /// Whether the limit keeps bytes back.
  bool held_back() const noexcept { return limiter_.limited() && limiter_.waits(share_); }
  static constexpr std::chrono::milliseconds look_again = limiter_type::tick_interval;

 private:
  limiter_type limiter_;
  limiter_type::share share_;
  std::uint64_t taken_ = 0;
};

}  // namespace tensorpull::detail
