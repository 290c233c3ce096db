// The updates of one round by their peers, in a table of fixed size that is made once.
#pragma once

#include <tensorpull/consumers/average/update_key.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/core/splitmix64.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <utility>

namespace tensorpull::detail {

/// Owns the records, in the order in which their updates began, and finds one in constant time. 112 bytes for each;
/// memory that no record has needed is not touched, but for the 4 bytes that find it.
class update_table {
 public:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  /// Errors: invalid_argument (no room at all), out_of_memory.
  static result<update_table> make(std::size_t most) noexcept {
    if (most == 0) return failure(errc::invalid_argument);
    if (most >= none || most > std::numeric_limits<std::size_t>::max() / 2 / bytes_each)
      return failure(errc::out_of_memory);
    std::unique_ptr<std::byte[]> block(new (std::nothrow) std::byte[most * bytes_each]);
    if (!block) return failure(errc::out_of_memory);
    return update_table(std::move(block), most);
  }

  std::size_t allocated_bytes() const noexcept { return most_ * bytes_each; }
  update_record& operator[](std::uint32_t i) noexcept { return records_[i]; }
  std::span<const update_record> records() const noexcept { return {records_, count_}; }

  void clear() noexcept {
    std::fill_n(first_, most_, none);
    count_ = 0;
  }
  /// The index of the peer's record, or `none`.
  std::uint32_t find(recipient_id peer) const noexcept {
    std::uint32_t i = first_[place(peer)];
    while (i != none && records_[i].peer.id() != peer) i = next_[i];
    return i;
  }
  /// Adds a record for a peer that has none, and gives its index; `none` if the table is full.
  std::uint32_t add(const update_peer& peer) noexcept {
    if (count_ == most_) return none;
    const std::uint32_t i = count_++;
    ::new (static_cast<void*>(records_ + i)) update_record{.peer = peer};
    next_[i] = std::exchange(first_[place(peer.id())], i);
    return i;
  }

 private:
  static constexpr std::size_t bytes_each = sizeof(update_record) + 2 * sizeof(std::uint32_t);

  update_table(std::unique_ptr<std::byte[]> block, std::size_t most) noexcept
      : block_(std::move(block)), records_(reinterpret_cast<update_record*>(block_.get())),
        next_(reinterpret_cast<std::uint32_t*>(records_ + most)), first_(next_ + most), most_(most) {
    clear();
  }

  /// Programs number their peers as they like, so the numbers are mixed.
  std::size_t place(recipient_id peer) const noexcept {
    return static_cast<std::size_t>(splitmix64{peer.value}() % most_);
  }

  std::unique_ptr<std::byte[]> block_;
  update_record* records_;
  std::uint32_t* next_;   // of a record: the next one whose peer has the same bucket
  std::uint32_t* first_;  // of a bucket: its newest record
  std::size_t most_;
  std::uint32_t count_ = 0;
};

}  // namespace tensorpull::detail
