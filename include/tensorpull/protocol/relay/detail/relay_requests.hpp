// What a relay's recipient has sent and nobody has taken yet: requests, one control frame at a time.
#pragma once

#include <tensorpull/core/limits.hpp>
#include <tensorpull/framing/concept.hpp>
#include <tensorpull/framing/detail/segment_table.hpp>

#include <array>
#include <cstring>

namespace tensorpull::detail {

/// The bytes are the queue: a request stays encoded until it can be passed on, so a recipient that asks too much fills its own connection.
template <framing Framing, class Limits>
class relay_requests {
 public:
  /// Memory for what comes next; empty: do not read now.
  std::span<std::byte> room() noexcept {
    drop_taken();
    return std::span(bytes_).subspan(have_);
  }
  void received(std::size_t n) noexcept { have_ += n; }

  /// The first request; its texts are valid until the next call of anything here. False: it is not whole yet. Errors: not a frame, longer
  /// than a control frame, or no request.
  result<bool> head(frame& m) noexcept {
    drop_taken();
    const auto have = std::span<const std::byte>(bytes_).first(have_);
    const auto size = measure_frame(have, bytes_.size(), Limits::control_frame_segments);
    if (!size) return failure(size.error());
    if (!*size || **size > have.size()) return false;
    head_ = **size;
    if (const auto ok = Framing::decode(have.first(head_), m, lists_); !ok) return failure(ok.error());
    if (!is_request(m.kind)) return failure(errc::unexpected_frame, static_cast<std::uint64_t>(m.kind));
    return true;
  }
  /// The request that head() gave is done with; what it points to stays until the next call.
  void take() noexcept { taken_ = head_; }

 private:
  void drop_taken() noexcept {
    if (taken_ == 0) return;
    have_ -= taken_;
    std::memmove(bytes_.data(), bytes_.data() + taken_, have_);
    taken_ = 0;
  }

  alignas(8) std::array<std::byte, Limits::control_frame_bytes> bytes_;
  typename Framing::decode_storage lists_;
  std::size_t have_ = 0, head_ = 0, taken_ = 0;
};

}  // namespace tensorpull::detail
