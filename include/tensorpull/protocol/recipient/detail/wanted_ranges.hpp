// Which bytes of an image a recipient wants, in order: all of them, or the ranges of named tensors. A position counts
// only wanted bytes, and those of tensors that were named before.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/framing/frame.hpp>
#include <tensorpull/std/optional.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace tensorpull::detail {

class wanted_ranges {
 public:
  /// The most ranges that one request may lead to after adjacent ones were joined: a recipient that wants more asks
  /// several times.
  static constexpr std::size_t capacity = 11;

  /// A position on the way through the ranges.
  struct position {
    std::uint64_t offset = 0;  ///< in the image
    std::size_t range = 0;
  };

  void all(std::uint64_t image_bytes) noexcept {
    ranges_[0] = {0, image_bytes};
    count_ = 1;
    before_ = 0;
    total_ = image_bytes;
  }
  /// Takes ranges as an owner states them, behind the first `before` wanted bytes. bad_frame: they do not lie in
  /// [first, last) in ascending order. does_not_fit: there are too many gaps; `at` is how many ranges there are room
  /// for.
  result<void> these(const element_list<byte_range>& stated, std::uint64_t before, std::uint64_t first,
                     std::uint64_t last) noexcept {
    count_ = 0;
    before_ = total_ = before;
    for (std::size_t i = 0; i < stated.size(); ++i) {
      const byte_range r = stated[i];
      if (r.begin < first || r.end < r.begin || r.end > last) return failure(errc::bad_frame, r.begin);
      first = r.end;
      if (r.begin == r.end) continue;
      total_ += r.end - r.begin;
      if (count_ > 0 && ranges_[count_ - 1].end == r.begin) ranges_[count_ - 1].end = r.end;
      else if (count_ == capacity) return failure(errc::does_not_fit, i);
      else ranges_[count_++] = r;
    }
    return {};
  }

  /// The position behind the last byte.
  std::uint64_t total() const noexcept { return total_; }
  bool over(const position& p) const noexcept { return p.range >= count_; }
  std::uint64_t end(const position& p) const noexcept { return ranges_[p.range].end; }
  /// Where the wanted byte number `n` lies; over() if n = total(). It is not before the first.
  position at(std::uint64_t n) const noexcept {
    position p;
    n -= before_;
    for (; p.range < count_; ++p.range) {
      const std::uint64_t length = ranges_[p.range].end - ranges_[p.range].begin;
      if (n < length) break;
      n -= length;
    }
    if (p.range < count_) p.offset = ranges_[p.range].begin + n;
    return p;
  }
  /// The reverse of at(): how many wanted bytes lie before `offset`; nothing if that byte is not wanted.
  optional<std::uint64_t> position_of(std::uint64_t offset) const noexcept {
    std::uint64_t before = before_;
    for (std::size_t i = 0; i < count_ && offset >= ranges_[i].begin; before += ranges_[i].end - ranges_[i].begin, ++i)
      if (offset < ranges_[i].end) return before + (offset - ranges_[i].begin);
    return {};
  }
  /// `length` must not pass the end of the range.
  void advance(position& p, std::uint64_t length) const noexcept {
    p.offset += length;
    if (p.offset == ranges_[p.range].end && ++p.range < count_) p.offset = ranges_[p.range].begin;
  }

 private:
  std::array<byte_range, capacity> ranges_{};
  std::size_t count_ = 0;
  std::uint64_t before_ = 0, total_ = 0;
};

}  // namespace tensorpull::detail
