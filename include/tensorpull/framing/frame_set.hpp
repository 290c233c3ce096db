// Which kinds of frames a program has: a set that is a constant.
#pragma once

#include <tensorpull/framing/frame.hpp>

#include <concepts>
#include <cstdint>

namespace tensorpull {

/// A set of kinds. It is meant for template arguments.
struct frame_set {
  /// bit k: the kind with the number k
  std::uint32_t bits = 0;

  /// The set of the kinds that are named.
  template <std::same_as<frame_kind>... Kind>
  static constexpr frame_set of(Kind... kinds) noexcept {
    return {(std::uint32_t{0} | ... | (std::uint32_t{1} << static_cast<unsigned>(kinds)))};
  }
  /// Whether `kind` is in it; false for numbers that no kind has.
  constexpr bool has(frame_kind kind) const noexcept {
    return static_cast<unsigned>(kind) < 32 && (bits >> static_cast<unsigned>(kind) & 1) != 0;
  }
  /// The kinds of both.
  friend constexpr frame_set operator|(frame_set a, frame_set b) noexcept { return {a.bits | b.bits}; }
  friend constexpr bool operator==(const frame_set&, const frame_set&) noexcept = default;
};

/// What a recipient of whole images with a known schema says and hears, besides chunks.
inline constexpr frame_set recipient_frames = frame_set::of(
    frame_kind::nothing, frame_kind::describe, frame_kind::pull, frame_kind::end, frame_kind::confirm,
    frame_kind::confirmed, frame_kind::cancel, frame_kind::refused, frame_kind::description);
/// What its owner hears and says: the same, and the requests for a page of the schema, which it refuses.
inline constexpr frame_set owner_frames = recipient_frames | frame_set::of(frame_kind::schema);
/// Every kind that has a frame of its own. Chunks and pieces are read elsewhere.
inline constexpr frame_set all_frames = owner_frames | frame_set::of(frame_kind::schema_page, frame_kind::locate,
                                                                     frame_kind::located, frame_kind::application);

}  // namespace tensorpull
