// One transfer, two consumers: the bytes land through the first and are copied to the second. A model and its file, in
// one pull.
#pragma once

#include <tensorpull/consumers/concept.hpp>

#include <algorithm>
#include <array>
#include <cstring>

namespace tensorpull {

/// `Destination` decides where the transport writes; `Observer` is any consumer and gets the same calls with the same
/// bytes.
///  - Both have to accept: if either refuses in begin(), commit() or chunk(), the transfer fails and each that has
///    begun is abandoned.
///  - finish() ends the observer first and the destination last, so make the one that is more likely to fail (a file)
///    the observer: its failure abandons the destination unfinished. If the destination fails after that, the observer
///    stays finished.
///  - If the observer has no memory now, the destination waits with it.
template <class Destination, class Observer>
class tee : public detail::null_consumer {
  // This one is chosen if one of the two is no consumer: the sentence names what it lacks.
  static_assert(sizeof(detail::consumer_checks<Destination>) != 0 && sizeof(detail::consumer_checks<Observer>) != 0);

 public:
  /// Borrows both.
  tee(Destination&, Observer&) noexcept {}
};
/// The tee of two consumers; the other one refuses a type that is not a consumer.
template <consumer Destination, consumer Observer>
class tee<Destination, Observer> {
 public:
  static constexpr bool irrevocable = Destination::irrevocable || Observer::irrevocable;

  static constexpr bool any_tensor_order = detail::takes_any_tensor_order<Destination> &&
                                           detail::takes_any_tensor_order<Observer>;  ///< if both do

  /// Borrows both.
  tee(Destination& destination, Observer& observer) noexcept : destination_(destination), observer_(observer) {}

  /// Of the one that insists on a schema; the destination's if both do (begin() then refuses what the observer does not
  /// take).
  std::uint64_t fingerprint() const noexcept {
    return destination_.fingerprint() != 0 ? destination_.fingerprint() : observer_.fingerprint();
  }
  const image_schema* schema() const noexcept {
    return destination_.fingerprint() != 0 ? destination_.schema() : observer_.schema();
  }

  result<void> begin(const description& d) noexcept {
    destination_open_ = observer_open_ = false;
    if (observer_.fingerprint() != 0 && observer_.fingerprint() != d.fingerprint) return failure(errc::schema_mismatch);
    destination_open_ = true;
    if (const auto ok = destination_.begin(d); !ok) return ok;
    observer_open_ = true;
    return observer_.begin(d);
  }

  prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    std::array<std::span<std::byte>, pieces> room;
    const prepared p = observer_.prepare(offset, length, room);
    return p.bytes == 0 ? prepared{} : destination_.prepare(offset, std::min(length, p.bytes), out);
  }

  result<void> commit(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    if (const auto ok = destination_.commit(offset, bytes); !ok) return ok;
    while (!bytes.empty()) {
      std::array<std::span<std::byte>, pieces> room;
      const prepared p = observer_.prepare(offset, bytes.size(), room);
      // it had memory for these bytes a moment ago; one that takes it back breaks the concept
      if (p.bytes == 0) return failure(errc::out_of_memory, offset);
      for (std::size_t i = 0; i < p.pieces; ++i) {
        std::memcpy(room[i].data(), bytes.data(), room[i].size());
        if (const auto ok = observer_.commit(offset, room[i]); !ok) return ok;
        offset += room[i].size();
        bytes = bytes.subspan(room[i].size());
      }
    }
    return {};
  }

  result<void> chunk(std::uint64_t offset, std::uint64_t length) noexcept {
    if (const auto ok = destination_.chunk(offset, length); !ok) return ok;
    return observer_.chunk(offset, length);
  }

  result<void> finish(const receipt& r) noexcept {
    if (const auto ok = observer_.finish(r); !ok) return ok;
    observer_open_ = false;
    if (const auto ok = destination_.finish(r); !ok) return ok;
    destination_open_ = false;
    return {};
  }

  void rewind(std::uint64_t offset) noexcept
    requires requires(Destination& d, Observer& o) {
      d.rewind(offset);
      o.rewind(offset);
    }
  {
    destination_.rewind(offset);
    observer_.rewind(offset);
  }

  /// The owner's answer to the confirmation was heard: tells each that wants to know.
  void confirmed() noexcept {
    if constexpr (requires { destination_.confirmed(); }) destination_.confirmed();
    if constexpr (requires { observer_.confirmed(); }) observer_.confirmed();
  }

  /// Each one that began and has not finished is abandoned, once.
  void abandon(const error& e) noexcept {
    if (observer_open_) observer_.abandon(e);
    if (destination_open_) destination_.abandon(e);
    observer_open_ = destination_open_ = false;
  }

 private:
  static constexpr std::size_t pieces = 8;

  Destination& destination_;
  Observer& observer_;
  bool destination_open_ = false, observer_open_ = false;
};

static_assert(consumer<tee<detail::null_consumer, detail::null_consumer>>);

}  // namespace tensorpull
