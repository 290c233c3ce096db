// The references that a recipient of a replica pulls, as the coordinator has described them.
#pragma once

#include <tensorpull/core/ids.hpp>
#include <tensorpull/framing/frame.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace tensorpull::detail {

struct described_reference {
  ref_id ref{};
  std::uint64_t version = 0, nonce = 0;
  std::uint64_t last = 0;  ///< where the last byte that the recipient can want ends
  std::uint32_t cap = 0;
  bool own = true;  ///< whether the replica has the same

  /// Whether the own copy has the chunk and it is not the last one, which is the coordinator's.
  bool gives(const frame& m, std::uint64_t length) const noexcept {
    if (!own || (m.version != 0 && m.version != version)) return false;
    if (m.offset >= last || m.length == all_in_one_chunk) return false;
    return length > 0 && runs_of(m).distance(length - 1) + 1 < last - m.offset;
  }
};

/// The `Most` references that were described last.
template <std::size_t Most>
class described_references {
 public:
  /// nullptr: it was not described.
  described_reference* find(ref_id ref) noexcept {
    for (described_reference& d : all_)
      if (d.version != 0 && d.ref == ref) return &d;
    return nullptr;
  }
  /// An answer of the coordinator.
  void learn(const frame& m) noexcept {
    described_reference* d = find(m.ref);
    if (m.kind == frame_kind::description) {
      if (d == nullptr) d = &all_[next_++ % Most];
      *d = {m.ref, m.version, m.nonce, m.image_bytes, m.length, true};
    } else if (m.kind == frame_kind::located && d != nullptr) {
      // a subset: the coordinator waits for its last byte
      d->nonce = m.nonce;
      d->last = 0;
      for (std::size_t i = 0; i < m.ranges.size(); ++i)
        if (const byte_range r = m.ranges[i]; r.begin < r.end) d->last = std::max(d->last, r.end);
    } else if (m.kind == frame_kind::refused && d != nullptr && m.status != status::busy) {
      d->own = false;  // it answers for itself
    }
  }

 private:
  std::array<described_reference, Most> all_{};
  std::size_t next_ = 0;
};

}  // namespace tensorpull::detail
