// A tunnel on the caller's thread: the bytes of two connections pass on to each other, and nobody here reads them.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/pull/stream_wire.hpp>
#include <tensorpull/satellites/relay/detail/two_streams.hpp>
#include <tensorpull/std/stop_token.hpp>

#include <array>

namespace tensorpull {

/// Limits of one tunnel.
struct tunnel_options {
  /// The longest time in which no byte moves.
  std::chrono::milliseconds idle_timeout = std::chrono::seconds(600);
  /// Ends the tunnel within 0.1 s.
  stop_token stop{};
  /// Bytes that the second end is sent in any second, at most; 0: no limit.
  std::uint64_t bytes_per_second = 0;
};
/// The bytes that a tunnel has passed on.
struct tunnelled {
  std::uint64_t forth = 0;  ///< from the first end to the second
  std::uint64_t back = 0;  ///< from the second end to the first
};

namespace detail {

/// One direction of a tunnel.
class passage {
 public:
  explicit passage(std::span<std::byte> memory) noexcept : memory_(memory) {}

  /// Whether bytes moved.
  template <byte_stream From>
  bool read(From& from) noexcept {
    if (!wants_bytes()) return false;
    if (begin_ == end_) begin_ = end_ = 0;
    const std::array<std::span<std::byte>, 1> room{memory_.subspan(end_)};
    const io_result io = from.read_some(room);
    end_ += io.bytes;
    if (is_end(io.status)) ended_ = true;
    return io.bytes > 0;
  }
  template <byte_stream To>
  bool write(To& to, relay_pace& pace) noexcept {
    if (!has_bytes()) return false;
    std::array<std::span<const std::byte>, 1> out{memory_.subspan(begin_, end_ - begin_)};
    if (pace.shorten(out) == 0) return false;
    const io_result io = to.write_some(out);
    pace.sent(io.bytes);
    begin_ += io.bytes;
    passed_ += io.bytes;
    if (is_end(io.status)) ended_ = true, begin_ = end_;
    return io.bytes > 0;
  }
  bool wants_bytes() const noexcept { return !ended_ && (begin_ == end_ || end_ < memory_.size()); }
  bool has_bytes() const noexcept { return begin_ < end_; }
  /// Its bytes have ended, and all of them have been passed on.
  bool over() const noexcept { return ended_ && !has_bytes(); }
  std::uint64_t passed() const noexcept { return passed_; }

 private:
  std::span<std::byte> memory_;
  std::size_t begin_ = 0, end_ = 0;
  std::uint64_t passed_ = 0;
  bool ended_ = false;
};

}  // namespace detail

/// Passes all bytes of two connections on to each other until either end hangs up; what that end sent before still
/// leaves. Two ends that have TLS between them (tls_stream over their streams to this party) show it neither names nor
/// bytes. `memory`: the only buffer, of which bytes to the second end have three quarters. Nothing is allocated.
///
/// An end that is lost has hung up, too: only the two ends know what should have arrived. Errors: invalid_argument:
/// `memory` has less than 4 bytes; timed_out: no byte has moved for `idle_timeout`; cancelled. `at`: bytes passed on.
/// Close both afterwards.
template <byte_stream First, byte_stream Second>
result<tunnelled> tunnel(First& first, Second& second, std::span<std::byte> memory,
                         const tunnel_options& options = {}) noexcept {
  if (memory.size() < 4) return failure(errc::invalid_argument);
  const auto quarter = memory.size() / 4;
  detail::passage forth(memory.subspan(quarter)), back(memory.first(quarter));
  detail::relay_pace pace(options.bytes_per_second), at_once(0);
  const detail::awaited_link line_of_first(first), line_of_second(second);
  auto moved_at = std::chrono::steady_clock::now();
  const auto ended = [&](errc why) noexcept { return failure(why, forth.passed() + back.passed()); };
  while (!forth.over() && !back.over()) {
    if (options.stop.stop_requested()) return ended(errc::cancelled);
    bool moved = forth.read(first);
    moved = back.read(second) || moved;
    moved = forth.write(second, pace) || moved;
    moved = back.write(first, at_once) || moved;
    const auto now = std::chrono::steady_clock::now();
    if (moved) {
      moved_at = now;
      continue;
    }
    const auto left = options.idle_timeout - std::chrono::floor<std::chrono::milliseconds>(now - moved_at);
    if (left.count() <= 0) return ended(errc::timed_out);
    if (forth.over() || back.over()) break;
    const bool held = pace.held_back();
    detail::wait_for_either(first, {forth.wants_bytes(), back.has_bytes()}, second,
                            {back.wants_bytes(), forth.has_bytes() && !held},
                            held ? detail::relay_pace::look_again : std::min(detail::wait_step, left));
  }
  // the other direction's last bytes, as far as there is room: the end that hung up may read them yet
  (void)forth.write(second, at_once);
  (void)back.write(first, at_once);
  return tunnelled{forth.passed(), back.passed()};
}

}  // namespace tensorpull
