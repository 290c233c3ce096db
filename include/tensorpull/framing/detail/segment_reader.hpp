// Follows the pointers of a Cap'n Proto message in any valid layout: far pointers, several segments, lists of structs
// of any size. Whatever the pointers say, it never reads outside the segments, and it follows no more than a given
// number of words.
//
// Written from the encoding specification, https://capnproto.org/encoding.html. It refuses exactly what the library
// refuses; a test compares the two on frames that were changed at random.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/framing/detail/control_words.hpp>
#include <tensorpull/framing/detail/payload_prefix.hpp>

#include <string_view>

namespace tensorpull::detail {

/// One segment: words [first, first + size) of the frame.
struct segment_place {
  std::uint32_t first = 0;
  std::uint32_t size = 0;
};

class segment_reader {
 public:
  /// The position of a pointer, and how many levels may be followed from there. `there` is false for a pointer that the
  /// sender's version does not have; it reads like a null pointer.
  struct pointer {
    std::size_t segment = 0, word = 0;
    int depth = 0;
    bool there = false;
  };
  /// A struct: `data_bytes` from byte `at` of the frame on, and `pointers` words after them.
  struct object {
    std::size_t segment = 0, at = 0, data_bytes = 0, pointers = 0;
    int depth = 0;
  };
  /// Elements that are `step` bytes apart, each like a struct.
  struct list {
    object first;
    std::size_t count = 0, step = 0;
  };
  /// The least content of a list's elements. Smaller elements of an older version are accepted as structs, single bits
  /// are not.
  enum class element : std::uint8_t {
    structs,
    words,
    pointers,
  };

  segment_reader() noexcept = default;
  segment_reader(const std::byte* bytes, const segment_place* segments, std::size_t count,
                 std::uint64_t most_words) noexcept
      : frame_(bytes), segments_(segments), segment_count_(count), words_left_(most_words) {}

  /// The same frame without a limit on the words, to read again what was read once.
  segment_reader again() const noexcept { return {frame_, segments_, segment_count_, ~std::uint64_t{0}}; }

  /// The first word of the message. False, here and below: not valid.
  bool root(int depth, pointer& out) noexcept {
    out = {0, segments_[0].first, depth, true};
    return spend(0, segments_[0].first, 1);
  }

  bool follow(const pointer& p, object& out) noexcept {
    out = {};
    if (is_null(p)) return true;
    target t;
    if (p.depth <= 0 || !find(p, t) || (t.word & 3) != 0) return false;
    const auto data = static_cast<std::size_t>(t.word >> 32 & 0xffff),
               pointers = static_cast<std::size_t>(t.word >> 48);
    out = {t.segment, 8 * t.at, 8 * data, pointers, p.depth - 1};
    return spend(t.segment, t.at, data + pointers);
  }

  bool follow(const pointer& p, element wanted, list& out) noexcept {
    out = {};
    if (is_null(p)) return true;
    target t;
    if (p.depth <= 0 || !find(p, t) || (t.word & 3) != 1) return false;
    const auto kind = static_cast<unsigned>(t.word >> 32 & 7);
    const auto count = static_cast<std::size_t>(t.word >> 35);
    if (kind == 7) return follow_composite(t, count, p.depth - 1, wanted, out);
    constexpr std::uint64_t bits[] = {0, 1, 8, 16, 32, 64, 64};
    if (!spend(t.segment, t.at, (count * bits[kind] + 63) / 64)) return false;
    if (kind == 0 && !spend(count))
      return false;  // elements without size count as a word each: a list may claim half a billion of them
    if (kind == 1 || (wanted == element::words && kind != 5) || (wanted == element::pointers && kind != 6))
      return false;
    const auto step = static_cast<std::size_t>(bits[kind] / 8);
    out = {{t.segment, 8 * t.at, kind == 6 ? 0 : step, kind == 6 ? 1u : 0u, p.depth - 1}, count, step};
    return true;
  }

  /// A list of bytes. `text`: it must end with a zero, which is not part of `out`.
  bool follow(const pointer& p, bool text, std::string_view& out) noexcept {
    out = {};
    if (is_null(p)) return true;
    target t;
    if (!find(p, t) || (t.word & 3) != 1 || (t.word >> 32 & 7) != 2) return false;
    const auto count = static_cast<std::size_t>(t.word >> 35);
    if (!spend(t.segment, t.at, (count + 7) / 8)) return false;
    const auto* const bytes = reinterpret_cast<const char*>(frame_ + 8 * t.at);
    if (text && (count == 0 || bytes[count - 1] != '\0')) return false;
    out = {bytes, text ? count - 1 : count};
    return true;
  }

  /// The i-th element as a struct.
  static bool at(const list& l, std::size_t i, object& out) noexcept {
    out = l.first;
    out.at += i * l.step;
    return out.depth-- > 0;
  }
  /// The i-th pointer of a struct.
  static pointer pointer_of(const object& o, std::size_t i) noexcept {
    return {o.segment, (o.at + o.data_bytes) / 8 + i, o.depth, i < o.pointers};
  }
  /// Where a struct's data begins.
  const std::byte* data_of(const object& o) const noexcept { return frame_ + o.at; }
  /// The first words of a struct's data; words that the sender's version does not have are zero.
  void copy_words(const object& o, std::uint64_t* to, std::size_t words) const noexcept {
    for (std::size_t i = 0; i < words; ++i) to[i] = 8 * (i + 1) <= o.data_bytes ? load_le64(frame_ + o.at + 8 * i) : 0;
  }

 private:
  struct target {
    std::uint64_t word = 0;  // the pointer that describes the object
    std::size_t segment = 0, at = 0;
  };

  std::uint64_t word(std::size_t i) const noexcept { return load_le64(frame_ + 8 * i); }
  bool is_null(const pointer& p) const noexcept { return !p.there || word(p.word) == 0; }

  bool spend(std::uint64_t words) noexcept {
    if (words > words_left_) return false;
    words_left_ -= words;
    return true;
  }
  /// The same, for words that must lie in the segment.
  bool spend(std::size_t segment, std::size_t at, std::uint64_t words) noexcept {
    const segment_place& s = segments_[segment];
    return at >= s.first && at - s.first + words <= s.size && spend(words);
  }
  /// The word at `distance` from the segment's start, or the segment's end if that is outside: an object without size
  /// may be anywhere.
  std::size_t place(std::size_t segment, std::int64_t distance) const noexcept {
    const segment_place& s = segments_[segment];
    const bool inside = distance >= 0 && distance <= static_cast<std::int64_t>(s.size);
    return s.first + (inside ? static_cast<std::size_t>(distance) : s.size);
  }
  std::size_t behind(std::size_t segment, std::size_t at, std::uint64_t from) const noexcept {
    const std::int64_t offset = static_cast<std::int32_t>(static_cast<std::uint32_t>(from)) >> 2;
    return place(segment, static_cast<std::int64_t>(at - segments_[segment].first) + 1 + offset);
  }

  /// Finds the object of a pointer. A far pointer leads to a pad of one pointer, or of two, of which the second
  /// describes the object.
  bool find(const pointer& p, target& out) noexcept {
    const std::uint64_t here = word(p.word);
    if ((here & 3) != 2) {
      out = {here, p.segment, behind(p.segment, p.word, here)};
      return true;
    }
    const auto segment = static_cast<std::size_t>(here >> 32);
    if (segment >= segment_count_) return false;
    const std::size_t pad = place(segment, static_cast<std::int64_t>(here >> 3 & 0x1fffffff));
    const bool two = (here & 4) != 0;
    if (!spend(segment, pad, two ? 2 : 1)) return false;
    const std::uint64_t first = word(pad);
    if (!two) {
      out = {first, segment, behind(segment, pad, first)};
      return (first & 3) != 2;
    }
    const auto last = static_cast<std::size_t>(first >> 32);
    if ((first & 3) != 2 || last >= segment_count_) return false;
    out = {word(pad + 1), last, place(last, static_cast<std::int64_t>(first >> 3 & 0x1fffffff))};
    return true;
  }

  /// A list of structs: its first word, the tag, has their number and the length of each.
  bool follow_composite(const target& t, std::size_t words, int depth, element wanted, list& out) noexcept {
    if (!spend(t.segment, t.at, std::uint64_t{words} + 1)) return false;
    const std::uint64_t tag = word(t.at);
    const auto count = static_cast<std::size_t>(tag >> 2 & 0x1fffffff),
               data = static_cast<std::size_t>(tag >> 32 & 0xffff), pointers = static_cast<std::size_t>(tag >> 48);
    if ((tag & 3) != 0 || std::uint64_t{count} * (data + pointers) > words) return false;
    if (data + pointers == 0 && !spend(count)) return false;
    if ((wanted == element::words && data == 0) || (wanted == element::pointers && pointers == 0)) return false;
    out = {{t.segment, 8 * (t.at + 1), 8 * data, pointers, depth}, count, 8 * (data + pointers)};
    return true;
  }

  const std::byte* frame_ = nullptr;
  const segment_place* segments_ = nullptr;
  std::size_t segment_count_ = 0;
  std::uint64_t words_left_ = 0;
};

}  // namespace tensorpull::detail
