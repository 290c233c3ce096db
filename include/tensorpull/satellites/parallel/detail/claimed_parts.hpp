// The parts of an image of which each is from one source alone, so that whoever gave wrong bytes is known.
#pragma once

#include <tensorpull/satellites/parallel/chunk_ledger.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/optional.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tensorpull::detail {

/// A part that is claimed, whatever there are.
struct claimed_part {
  std::uint64_t asked = 0, landed = 0;  ///< bytes from its beginning on
  std::uint8_t line = 0xff, source = 0xff;
  bool right = false;  ///< all of it has landed and was checked
  bool free = false;  ///< any source may begin it anew
  std::uint8_t freed = 0;  ///< so often; 16 at most
};

/// An image is cut into at most `Most` parts of equal length, a power of two and whole groups. A line claims a part,
/// and its bytes land in their order. A part that its line has left is gone on with by its source; another one begins
/// it anew.
template <std::size_t Most = most_parts>
class claimed_parts {
 public:
  static constexpr std::uint8_t nobody = 0xff;

  using part = claimed_part;

  /// The first `right` bytes are there already. `by_groups`: of a part that is left only whole groups stay.
  void begin(std::uint64_t image_bytes, std::uint64_t group_bytes, std::uint64_t right, bool by_groups) noexcept {
    image_bytes_ = image_bytes;
    stays_ = by_groups ? group_bytes : 1;
    shift_ = static_cast<std::uint8_t>(std::bit_width(group_bytes) - 1);
    while (image_bytes != 0 && (image_bytes - 1) >> shift_ >= Most) ++shift_;
    count_ = image_bytes == 0 ? 0 : static_cast<std::size_t>(((image_bytes - 1) >> shift_) + 1);
    for (std::size_t i = 0; i < count_; ++i) {
      part& p = parts_[i];
      const std::uint64_t there = right - std::min(right, begin_of(i));
      p = {.right = there >= length_of(i)};
      p.asked = p.landed = std::min(there, length_of(i));
    }
  }
  /// Of parts that are not wanted nothing is missing, of the others all. Returns how many are. `wants(at, length)`.
  template <class Wants>
  std::size_t want(Wants wants) noexcept {
    std::size_t wanted = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      part& p = parts_[i];
      p = {.right = !wants(begin_of(i), length_of(i))};
      if (p.right) p.asked = p.landed = length_of(i);
      else ++wanted;
    }
    return wanted;
  }
  std::size_t size() const noexcept { return count_; }
  /// Their length, as a shift.
  std::uint8_t shift() const noexcept { return shift_; }
  part& operator[](std::size_t i) noexcept { return parts_[i]; }
  const part& operator[](std::size_t i) const noexcept { return parts_[i]; }
  std::size_t index_of(const part& p) const noexcept { return static_cast<std::size_t>(&p - parts_.data()); }
  std::uint64_t begin_of(std::size_t i) const noexcept { return std::uint64_t{i} << shift_; }
  std::uint64_t length_of(std::size_t i) const noexcept {
    return std::min(std::uint64_t{1} << shift_, image_bytes_ - begin_of(i));
  }
  /// How many parts have one of the first `bytes` bytes.
  std::size_t parts_with(std::uint64_t bytes) const noexcept {
    return bytes == 0 ? 0 : static_cast<std::size_t>(((bytes - 1) >> shift_) + 1);
  }
  /// The first that is not right; size(): all are.
  std::size_t first_missing() const noexcept {
    std::size_t i = 0;
    while (i < count_ && parts_[i].right) ++i;
    return i;
  }
  /// How many bytes the parts before that have.
  std::uint64_t first_missing_byte() const noexcept { return std::min(begin_of(first_missing()), image_bytes_); }
  std::uint64_t landed() const noexcept {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < count_; ++i) sum += parts_[i].landed;
    return sum;
  }
  /// The part with this byte, if it is the next one that a line has to bring; nullptr: nobody wants it from there.
  part* awaited(std::uint8_t line, std::uint64_t at) noexcept {
    const std::uint64_t i = at >> shift_;
    if (i >= count_) return nullptr;
    part& p = parts_[static_cast<std::size_t>(i)];
    return !p.right && p.line == line && begin_of(static_cast<std::size_t>(i)) + p.landed == at ? &p : nullptr;
  }

  /// The part among the first `end` that a line asks next, which it claims; nullptr: there is none, or it has claimed
  /// `most`. `returns(source)`: whether that source may go on with what it has begun. `gives(part)`: whether this one
  /// may be asked for a part that it has not begun, as the plan has it.
  template <class Returns, class Gives>
  part* next_for(std::uint8_t line, std::uint8_t source, std::size_t end, std::size_t most, Returns returns,
                 Gives gives) noexcept {
    part *begun = nullptr, *fresh = nullptr, *left = nullptr;
    std::size_t claimed = 0;
    unsigned most_worth = 0;  // of the fresh ones
    for (std::size_t i = 0; i < end; ++i) {
      part& p = parts_[i];
      if (p.right) continue;
      if (p.line == line) {
        if (p.asked < length_of(i)) return &p;
        ++claimed;
      } else if (p.line == nobody) {
        part*& others = p.source == nobody ? fresh : left;
        part*& kind = p.source == source ? begun : others;
        if (&kind == &fresh) {
          if (const unsigned worth = gives(p); worth > most_worth) most_worth = worth, kind = &p;
        } else if (kind == nullptr && (&kind == &begun || ((p.free || !returns(p.source)) && gives(p) != 0))) kind = &p;
      }
    }
    part* p = begun;
    if (p == nullptr) p = fresh;
    if (p == nullptr) p = left;
    if (p == nullptr || claimed >= most) return nullptr;
    if (p == left) empty(*p);
    p->line = line;
    p->source = source;
    p->free = false;
    return p;
  }
  /// A line will not answer what it was asked. `goes_on`: its source may go on with what it has begun.
  void leave(std::uint8_t line, bool goes_on) noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
      if (parts_[i].right || parts_[i].line != line) continue;
      if (goes_on) abandon(parts_[i]);
      else empty(parts_[i]);
    }
  }
  /// The bytes that a source has given of unfinished parts do not count.
  void forget(std::uint8_t source) noexcept {
    for (std::size_t i = 0; i < count_; ++i)
      if (!parts_[i].right && parts_[i].source == source) empty(parts_[i]);
  }
  /// Whose parts they were. `line`: nobody, if it had left them.
  struct holder {
    std::uint8_t line = nobody, source = nobody;
  };
  /// Any source may begin the parts anew that the slowest of the other lines has claimed or left. Nothing: there are
  /// none. `gives(part)`: whether the source of this number may be asked for it now.
  template <class Gives>
  optional<holder> free_slowest(std::uint8_t line, Gives gives) noexcept {
    const part* slowest = nullptr;
    std::uint64_t most = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      const part& p = parts_[i];
      if (p.right || p.source == nobody || p.line == line || p.free || length_of(i) - p.landed <= most || !gives(p))
        continue;
      most = length_of(i) - p.landed;
      slowest = &p;
    }
    if (slowest == nullptr) return {};
    const holder of{slowest->line, slowest->source};
    for (std::size_t i = 0; i < count_; ++i) {
      part& p = parts_[i];
      if (p.right || p.line != of.line || p.source != of.source) continue;
      abandon(p);
      p.free = true;
      if (p.freed < 16) ++p.freed;
    }
    return of;
  }

 private:
  void abandon(part& p) noexcept {
    p.line = nobody;
    p.asked = p.landed -= p.landed % stays_;
  }
  void empty(part& p) noexcept {
    p.landed = 0;
    abandon(p);
    p.source = nobody;
    p.free = false;
  }

  std::array<part, Most> parts_{};
  std::uint64_t image_bytes_ = 0, stays_ = 1;
  std::size_t count_ = 0;
  std::uint8_t shift_ = 0;
};

}  // namespace tensorpull::detail
