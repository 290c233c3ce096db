// What an owner remembers of one connection: which references it is pulling, in a table of fixed size.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tensorpull {

/// One recipient's use of one publication. acquired (first request), provisional (served to the end), final (confirmed or cancelled).
struct serve {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;  ///< 0: this entry is free
  std::uint64_t nonce = 0;
  std::uint64_t subset_digest = 0;
  std::uint64_t subset_end = 0;
  /// How this recipient was counted when it ended before: one that asks again replaces its count, it does not add one.
  enum class count : std::uint8_t { none, completed, completed_unverified, failed, cancelled };
  count counted = count::none;
  bool subset = false;
  bool provisional = false;
  bool final = false;

  bool open() const noexcept { return generation != 0 && !final; }
};

template <class Limits>
class serve_table {
 public:
  /// The entry for a publication, made if there is none; a finished entry makes room, and one whose publication is `gone(entry)`.
  /// nullptr: too many transfers are open.
  template <class Gone, class MakeNonce>
  serve* acquire(std::uint32_t slot, std::uint32_t generation, Gone gone, MakeNonce make_nonce) noexcept {
    serve* room = nullptr;
    for (serve& s : entries_) {
      if (s.generation == generation && s.slot == slot) {
        if (!s.final) return &s;
        room = &s;  // it finished and asks again: a new serve with a new nonce
        break;
      }
      if (room == nullptr && (!s.open() || gone(s))) room = &s;
    }
    if (room == nullptr) return nullptr;
    const auto counted = room->generation == generation && room->slot == slot ? room->counted : serve::count::none;
    *room = {};
    room->counted = counted;
    room->slot = slot;
    room->generation = generation;
    room->nonce = make_nonce(counted != serve::count::none);
    return room;
  }

  serve* find(std::uint32_t slot, std::uint32_t generation, std::uint64_t nonce) noexcept {
    for (serve& s : entries_)
      if (s.generation != 0 && s.slot == slot && s.generation == generation && s.nonce == nonce) return &s;
    return nullptr;
  }

  /// Empties the table; last(entry) is called for each entry before.
  template <class Last>
  void clear(Last last) noexcept {
    for (serve& s : entries_) {
      last(s);
      s = {};
    }
  }

 private:
  serve entries_[Limits::transfers_per_connection]{};
};

}  // namespace tensorpull
