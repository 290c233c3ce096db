// A publisher's tables, and the callbacks that a thread is inside of.
#pragma once

#include <tensorpull/protocol/owner/owner_memory.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace tensorpull::detail {

/// How many callbacks of publishers this thread is inside of.
inline thread_local std::uint32_t callbacks_entered = 0;

/// Marks the thread as inside a callback until the end of the scope.
struct [[nodiscard]] callback_scope {
  callback_scope() noexcept { ++callbacks_entered; }
  callback_scope(const callback_scope&) = delete;
  callback_scope& operator=(const callback_scope&) = delete;
  ~callback_scope() { --callbacks_entered; }
};

/// The owner's state machine: the protocol's own, or the one that the transport makes of it.
template <class Transport, class Owner>
struct owner_over {
  using type = Owner;
};
template <class Transport, class Owner>
  requires requires { typename Transport::template sharing_owner<Owner>; }
struct owner_over<Transport, Owner> {
  using type = typename Transport::template sharing_owner<Owner>;
};

/// Where an owner has its tables: in itself, or where its limits say (protocol/owner/owner_room.hpp).
template <class Limits, class Kept, std::size_t References, std::size_t Recipients>
struct room_of {
  owner_storage<References, Recipients> memory{};
  // a version and the one before, which is kept until its settlement is delivered
  std::array<Kept, 2 * References> kept{};
  explicit room_of(const owner_room_size&) noexcept {}
  static constexpr bool has(const owner_room_size& wanted) noexcept {
    return owner_storage<References, Recipients>::has(wanted);
  }
};
template <class Limits, class Kept, std::size_t References, std::size_t Recipients>
  requires requires { typename Limits::owner_room; }
struct room_of<Limits, Kept, References, Recipients> {
  typename Limits::owner_room::template storage<References, Recipients> memory;
  typename Limits::owner_room::template list<Kept, 2 * References> kept;
  explicit room_of(const owner_room_size& wanted) noexcept
      : memory(all_of(wanted)), kept(memory.has(all_of(wanted)) ? 2 * all_of(wanted).references : 0) {}
  bool has(const owner_room_size& wanted) const noexcept {
    return memory.has(all_of(wanted)) && kept.size() >= 2 * all_of(wanted).references;
  }
  static constexpr owner_room_size all_of(owner_room_size wanted) noexcept {
    if (wanted.references == 0) wanted.references = References;
    if (wanted.recipients == 0) wanted.recipients = Recipients;
    return wanted;
  }
};

}  // namespace tensorpull::detail
