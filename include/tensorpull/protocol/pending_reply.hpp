// An answer on its way: a few words, from which its frame is written whenever it is sent.
#pragma once

#include <tensorpull/framing/frame.hpp>

namespace tensorpull {

/// An answer that waits to be sent: enough to write its frame again at any time, since a partly sent frame is produced anew.
struct pending_reply {
  frame_kind kind = frame_kind::nothing;
  tensorpull::status status = status::ok;
  std::uint32_t id = 0;
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  std::uint32_t length = 0;
  std::uint32_t record = 0;  ///< of the recipient that gets it
  ref_id ref{};
  std::uint64_t version = 0;
  std::uint64_t offset = 0;
  std::uint64_t nonce = 0;
  std::uint64_t digest = 0;
};

inline bool refuse(pending_reply& r, status why) noexcept {
  r.kind = frame_kind::refused;
  r.status = why;
  return true;
}

}  // namespace tensorpull
