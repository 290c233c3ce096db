// Room for an owner whose size is known when it is opened: one allocation for each table, then none. The default has
// its room in itself.
#pragma once

#include <tensorpull/protocol/owner/owner_memory.hpp>
#include <tensorpull/std/memory.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>

namespace tensorpull {

/// Holds an owner's memory, of any size. Allocates once, and never grows.
class heap_owner_storage {
 public:
  /// More than any table's index can count is refused like what there is no memory for: has() is false then, and there
  /// is no room at all.
  explicit heap_owner_storage(const owner_room_size& size) noexcept
      : slots_(counted(size) ? size.references : 0), transactions_(counted(size) ? size.references + 2 : 0),
        records_(counted(size) ? size.recipients : 0), buckets_(counted(size) ? size.recipients : 0) {}

  /// Borrows it; valid as long as this object is.
  owner_memory view() noexcept {
    return {{slots_.data(), slots_.size()},
            {transactions_.data(), transactions_.size()},
            {records_.data(), records_.size()},
            {buckets_.data(), buckets_.size()}};
  }
  operator owner_memory() noexcept { return view(); }
  /// Whether there is as much room as is wanted.
  bool has(const owner_room_size& wanted) const noexcept {
    return slots_.size() >= wanted.references && transactions_.size() > wanted.references &&
           records_.size() >= wanted.recipients && buckets_.size() == records_.size();
  }

 private:
  static constexpr bool counted(const owner_room_size& size) noexcept {
    constexpr std::size_t most = std::numeric_limits<std::uint32_t>::max() / 2;
    return size.references <= most && size.recipients <= most;
  }

  detail::heap_array<publication> slots_;
  detail::heap_array<transaction> transactions_;
  detail::heap_array<recipient_record> records_;
  detail::heap_array<std::uint32_t> buckets_;
};

/// In a limits policy, `using owner_room = heap_owner_room;`: owners of many recipients have room for what their
/// options say (host_options::room, datagram_owner_options::room), and for as much as the limits say if those say
/// nothing. It is taken when the owner is opened, which is out_of_memory if there is none. Looking up a reference costs
/// a pass over the references, as always.
struct heap_owner_room {
  template <std::size_t References, std::size_t Recipients>
  using storage = heap_owner_storage;  ///< the tables
  template <class T, std::size_t Count>
  using list = detail::heap_array<T>;  ///< what a publisher keeps
};

}  // namespace tensorpull
