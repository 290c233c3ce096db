// The answers of one end that wait to be sent, in the order of their requests.
#pragma once

#include <tensorpull/protocol/pending_reply.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace tensorpull::detail {

/// How many wait, whatever there is room for.
class reply_count {
 public:
  std::size_t size() const noexcept { return count_; }

 protected:
  std::uint32_t first_ = 0, count_ = 0;
};

/// `Capacity`: the most; 0: of an end that owns nothing, which takes no memory for them.
template <std::size_t Capacity>
class reply_queue : public reply_count {
 public:
  /// The i-th that waits.
  pending_reply& operator[](std::size_t i) noexcept { return replies_[(first_ + i) % places]; }
  const pending_reply& operator[](std::size_t i) const noexcept { return replies_[(first_ + i) % places]; }
  /// Only if there are fewer than the most.
  void push(const pending_reply& r) noexcept { (*this)[count_++] = r; }
  /// The first n were sent.
  void pop(std::size_t n = 1) noexcept {
    first_ = static_cast<std::uint32_t>((first_ + n) % places);
    count_ -= static_cast<std::uint32_t>(n);
  }

 private:
  static constexpr std::size_t places = Capacity > 0 ? Capacity : 1;
  [[no_unique_address]] std::array<pending_reply, Capacity> replies_;
};

/// The queue of an end with this owner.
template <class Owner>
using replies_of = reply_queue<Owner::owns ? Owner::waiting_replies : 0>;

}  // namespace tensorpull::detail
