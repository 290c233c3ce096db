// The length of a frame, from its segment table alone. Our own limits are checked before anything is allocated or
// awaited.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/framing/detail/payload_prefix.hpp>
#include <tensorpull/std/optional.hpp>

namespace tensorpull::detail {

/// Bytes of the frame at the head of `have`; nothing as long as too few bytes are there to tell.
/// bad_frame: the count of segments wraps around, or the first segment is empty. too_large: more than `max_segments`,
/// or more than `max_bytes` in all.
constexpr result<optional<std::size_t>> measure_frame(std::span<const std::byte> have, std::size_t max_bytes,
                                                      std::size_t max_segments) noexcept {
  if (have.size() < 8) return optional<std::size_t>{};
  const auto word = [&](std::size_t i) { return load_le64(have.data() + 8 * (i / 2)) >> (32 * (i % 2)) & 0xffffffffu; };
  const std::uint64_t segments = word(0) + 1;
  if (segments > 0xffffffffu) return failure(errc::bad_frame, 0);
  if (segments > max_segments) return failure(errc::too_large, 0);
  const std::size_t table = static_cast<std::size_t>(segments / 2 + 1) * 8;
  if (have.size() < table) return optional<std::size_t>{};
  std::uint64_t total = table;  // cannot wrap: at most max_segments terms below 2^35
  for (std::size_t i = 1; i <= segments; ++i) total += word(i) * 8;
  if (word(1) == 0) return failure(errc::bad_frame, 4);  // the root pointer is in the first segment
  if (total > max_bytes) return failure(errc::too_large, total);
  return optional<std::size_t>{static_cast<std::size_t>(total)};
}

}  // namespace tensorpull::detail
