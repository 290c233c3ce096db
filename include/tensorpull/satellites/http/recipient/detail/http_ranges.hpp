// The ranges of a file that a transfer has asked for, and the way of their bytes into it.
#pragma once

#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/framing/frame.hpp>
#include <tensorpull/std/optional.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tensorpull::detail {

/// They land in their order: the first is the one whose bytes come next. Borrows the transfer.
template <class Transfer>
class http_ranges {
 public:
  struct item {
    std::uint32_t id = 0;
    std::uint64_t offset = 0, length = 0, landed = 0;
    bool delivered = false;  // the transfer has taken it

    std::uint64_t next() const noexcept { return offset + landed; }
    std::uint64_t end() const noexcept { return offset + length; }
  };

  explicit http_ranges(Transfer& t) noexcept : t_(t) {}

  std::size_t size() const noexcept { return count_; }
  item& operator[](std::size_t n) noexcept { return items_[(first_ + n) % items_.size()]; }
  void clear() noexcept { count_ = 0, later_ = {}; }

  /// The next frame of the transfer, also one that came up while bytes landed. False: there is none, or no room for a
  /// range.
  bool next_frame(frame& f) noexcept {
    if (count_ == items_.size()) return false;
    if (!later_) return t_.next(f);
    f = *later_;
    later_ = {};
    return true;
  }
  /// A range that was asked for, of a file of so many bytes.
  void push(const frame& f, std::uint64_t total) noexcept {
    const std::uint64_t rest = total - std::min(total, f.offset);
    (*this)[count_++] = {f.id, f.offset, std::min<std::uint64_t>(f.length, rest)};
  }
  /// The range whose bytes come next; null: there is none. As chunks land, others are asked for.
  item* wanted(std::uint64_t total) noexcept {
    for (frame f; !later_ && count_ < items_.size() && t_.next(f);) {
      if (f.kind == frame_kind::pull) push(f, total);
      else later_ = f;
    }
    return count_ > 0 ? &(*this)[0] : nullptr;
  }
  /// Offers the first range to the transfer, with a frame of a chunk. False: it does not want it any more.
  bool deliver(item& i, frame chunk) noexcept {
    chunk.offset = i.offset;
    chunk.length = static_cast<std::uint32_t>(i.length);
    i.delivered = t_.on_chunk(chunk);
    if (!i.delivered) pop();
    return i.delivered;
  }
  /// Copies bytes of the first range to where they belong. How many; 0: there is no memory for them now.
  std::size_t land(item& i, std::span<const std::byte> bytes) {
    std::array<std::span<std::byte>, 16> memory;
    const prepared p = t_.prepare(memory, std::min<std::uint64_t>(bytes.size(), i.length - i.landed));
    starved = p.bytes == 0;
    i.landed += p.bytes;
    if (i.landed == i.length) pop();
    for (const auto& s : std::span(memory).first(p.pieces)) {
      std::memcpy(s.data(), bytes.data(), s.size());
      bytes = bytes.subspan(s.size());
      t_.landed(s);
    }
    return static_cast<std::size_t>(p.bytes);
  }

  bool starved = false;  ///< the consumer has no memory now

 private:
  void pop() noexcept { first_ = (first_ + 1) % items_.size(), --count_; }

  Transfer& t_;
  std::array<item, 16> items_{};
  std::size_t first_ = 0, count_ = 0;
  optional<frame> later_{};  // that came up while bytes landed
};

}  // namespace tensorpull::detail
