// Requests that arrive late: doubles of older ones, which a link has kept.
#pragma once

#include <tensorpull/framing/frame.hpp>

#include <cstdint>

namespace tensorpull::detail {

/// Whether a request is a late double of one that arrived before the last that changed something, which it must not
/// undo.
class late_requests {
 public:
  /// Looks at a request. True: it is late, and nothing.
  constexpr bool is_late(frame_kind kind, std::uint32_t id) noexcept {
    const std::uint32_t behind = newest_ - id;
    if (known_ && behind != 0 && behind < late_ids) {
      if (kind != frame_kind::describe || late_id_ != id) {
        late_id_ = id;
        late_ = 1;
        return true;
      }
      if (++late_ < most_late) return true;
    }
    late_ = 0;
    return false;
  }
  /// A request has changed something, or may have. If others may ask, too, one that was refused has not: it must not
  /// make those of the recipient late.
  constexpr void has_changed(std::uint32_t id) noexcept {
    newest_ = id;
    known_ = true;
  }

 private:
  /// An id that is so little behind is late.
  static constexpr std::uint32_t late_ids = 1u << 20;
  /// Requests of one id that are late in a row before they are believed: the peer was started again and chose its ids
  /// badly.
  static constexpr std::uint8_t most_late = 4;

  std::uint32_t newest_ = 0, late_id_ = 0;  // the id of the last request that changed something
  std::uint8_t late_ = 0;
  bool known_ = false;
};

}  // namespace tensorpull::detail
