// Which bytes of an image a recipient wants, in order: all of them, or those of named tensors and of slices. A position
// counts only wanted bytes, and those of tensors that were named before.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/framing/frame.hpp>
#include <tensorpull/image/byte_runs.hpp>
#include <tensorpull/std/optional.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tensorpull::detail {

/// A position on the way through the ranges.
struct wanted_position {
  std::uint64_t offset = 0;  ///< in the image
  std::size_t range = 0;
};

/// `Slices`: limits::slices.
template <bool Slices>
class wanted_ranges {
 public:
  /// The most ranges that one request may lead to after adjacent ones were joined: a recipient that wants more asks
  /// several times.
  static constexpr std::size_t capacity = 11;
  using runs_type = std::conditional_t<Slices, byte_runs, one_run>;
  /// A range, and the runs in it that are wanted.
  using part = strided_range<runs_type>;

  void all(std::uint64_t image_bytes) noexcept {
    parts_[0] = {0, image_bytes, {}};
    count_ = 1;
    before_ = 0;
    total_ = image_bytes;
  }
  /// Takes ranges as an owner states them, behind the first `before` wanted bytes. `part_of(i, range)`: what is wanted
  /// of the i-th; nothing if it cannot be that. bad_frame: they do not lie in [first, last) in ascending order.
  /// does_not_fit: there are too many gaps; `at` is how many ranges there are room for.
  template <class PartOf>
  result<void> these(const element_list<byte_range>& stated, std::uint64_t before, std::uint64_t first,
                     std::uint64_t last, PartOf part_of) noexcept {
    count_ = 0;
    before_ = total_ = before;
    for (std::size_t i = 0; i < stated.size(); ++i) {
      const byte_range r = stated[i];
      if (r.begin < first || r.end < r.begin || r.end > last) return failure(errc::bad_frame, r.begin);
      first = r.end;
      part wanted{r.begin, r.end, {}};
      if (!part_of(i, wanted)) return failure(errc::bad_frame, r.begin);
      if (r.begin == r.end) continue;
      total_ += wanted.size();
      part* const last_one = count_ > 0 ? &parts_[count_ - 1] : nullptr;
      const bool joins = last_one != nullptr && last_one->end == r.begin && !last_one->runs.apart();
      if (joins && !wanted.runs.apart()) last_one->end = r.end;
      else if (count_ == capacity) return failure(errc::does_not_fit, i);
      else parts_[count_++] = wanted;
    }
    return {};
  }

  /// The position behind the last byte.
  std::uint64_t total() const noexcept { return total_; }
  bool over(const wanted_position& p) const noexcept { return p.range >= count_; }
  /// How many wanted bytes of its range are left.
  std::uint64_t left(const wanted_position& p) const noexcept {
    const part& r = parts_[p.range];
    return r.runs.apart() ? r.size() - r.runs.before(p.offset - r.begin) : r.end - p.offset;
  }
  /// The same of its run.
  std::uint64_t left_in_run(const wanted_position& p) const noexcept {
    const part& r = parts_[p.range];
    return r.runs.left_in_run(r.runs.before(p.offset - r.begin));
  }
  /// How so many wanted bytes lie from there on.
  runs_type runs(const wanted_position& p, std::uint64_t length) const noexcept {
    return Slices && !over(p) && length > left_in_run(p) ? parts_[p.range].runs : runs_type{};
  }
  /// How all wanted bytes of the range lie.
  runs_type runs(const wanted_position& p) const noexcept { return parts_[p.range].runs; }
  /// Where the wanted byte number `n` lies; over() if n = total(). It is not before the first.
  wanted_position at(std::uint64_t n) const noexcept {
    wanted_position p;
    n -= before_;
    for (; p.range < count_; ++p.range) {
      const std::uint64_t length = parts_[p.range].size();
      if (n < length) break;
      n -= length;
    }
    if (p.range < count_) p.offset = parts_[p.range].begin + parts_[p.range].runs.distance(n);
    return p;
  }
  /// The reverse of at(): how many wanted bytes lie before `offset`; nothing if that byte is not wanted.
  optional<std::uint64_t> position_of(std::uint64_t offset) const noexcept {
    std::uint64_t before = before_;
    for (std::size_t i = 0; i < count_ && offset >= parts_[i].begin; before += parts_[i].size(), ++i) {
      const part& r = parts_[i];
      if (offset >= r.end) continue;
      const std::uint64_t n = r.runs.before(offset - r.begin);
      if (r.runs.distance(n) == offset - r.begin) return before + n;
      break;
    }
    return {};
  }
  /// `length` must not pass the end of the range.
  void advance(wanted_position& p, std::uint64_t length) const noexcept {
    const part& r = parts_[p.range];
    if (r.runs.apart()) {
      const std::uint64_t n = r.runs.before(p.offset - r.begin) + length;
      p.offset = n == r.size() ? r.end : r.begin + r.runs.distance(n);
    } else {
      p.offset += length;
    }
    if (p.offset == r.end && ++p.range < count_) p.offset = parts_[p.range].begin;
  }

 private:
  std::array<part, capacity> parts_{};
  std::size_t count_ = 0;
  std::uint64_t before_ = 0, total_ = 0;
};

}  // namespace tensorpull::detail
