// What an owner remembers of one connection: who is at its other end, and which references it is pulling. Fixed size.
#pragma once

#include <tensorpull/core/ids.hpp>

#include <cstddef>
#include <cstdint>

namespace tensorpull {

/// One use of one publication by a connection; what is known of it lies in the recipient's record.
struct serve {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;  ///< 0: this entry is free
  std::uint32_t record = 0;
};

template <class Limits>
class serve_table {
 public:
  recipient_id who{};          ///< as the last description was asked for; none: anonymous
  recipient_id anonymous{};    ///< the owner's name for it then
  std::uint32_t number = 0;    ///< of this connection at its owner; 0: not used yet

  serve* find(std::uint32_t slot, std::uint32_t generation) noexcept {
    for (serve& s : entries_)
      if (s.generation == generation && s.slot == slot) return &s;
    return nullptr;
  }
  /// A free entry, or one that is `over(entry)`. nullptr: too many transfers are open.
  template <class Over>
  serve* place(Over over) noexcept {
    for (serve& s : entries_)
      if (s.generation == 0 || over(s)) return &s;
    return nullptr;
  }
  serve* begin() noexcept { return entries_; }
  serve* end() noexcept { return entries_ + Limits::transfers_per_connection; }

 private:
  serve entries_[Limits::transfers_per_connection]{};
};

}  // namespace tensorpull
