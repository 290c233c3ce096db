// Reads the header of an image while it arrives, a piece at a time, and keeps what it says: names, dtypes, shapes,
// metadata. The JSON text is never held. Only the writer's spelling (image/header.hpp) is accepted, apart from the
// escapes in strings. The length and the data offsets are passed over: they follow from the tensors, and whoever uses
// the header compares its fingerprint and its sizes.
//
// The reader of safetensors files (component `safetensors`) takes any spelling of the JSON, in any order and with
// unknown fields, from a file that is at hand as a whole and can be read twice; it needs a JSON library. This one takes
// one spelling, needs no library, can stop after any byte and go back to an earlier one. Neither could serve both: a
// file need not be canonical, and an owner's header cannot be read twice. What they share is what a header means:
// dtypes by name, sizes and order are checked by core and by arrange().
#pragma once

#include <tensorpull/image/header.hpp>
#include <tensorpull/image/schema.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tensorpull {

/// Memory grows with what has been received, not with what the header claims, and is kept packed: of each byte of the
/// header at most one is kept, and the strings that hold them may reserve twice that.
class header_reader {
 public:
  /// `most_tensors`: take() refuses a header with more.
  explicit header_reader(std::uint64_t most_tensors) noexcept : most_tensors_(most_tensors) {}

  /// Takes the next bytes of the header, its 8 leading bytes first. Errors: bad_frame with the place (no header of an
  /// image); unsupported_dtype with the tensor's name; too_large (more tensors than allowed). Throws std::bad_alloc.
  result<void> take(std::span<const std::byte> bytes) {
    for (const std::byte b : bytes) {
      const auto taken = take(static_cast<char>(b));
      if (!taken) return failure(taken.error());
      ++now_.at;
    }
    return {};
  }
  /// Whether nothing but padding can follow.
  bool complete() const noexcept { return now_.state == in::padding; }

  /// Bytes of the table that entries() makes.
  std::uint64_t table_bytes() const noexcept {
    return now_.tensors * sizeof(tensor_entry) + now_.extents * sizeof(std::uint64_t) +
           now_.pairs * sizeof(metadata_entry);
  }
  /// Makes entries and pairs, in the order of the text. They point into this object and into `extents`. Throws
  /// std::bad_alloc.
  void entries(std::vector<tensor_entry>& tensors, std::vector<std::uint64_t>& extents,
               std::vector<metadata_entry>& metadata) const {
    extents.reserve(static_cast<std::size_t>(now_.extents));
    tensors.reserve(static_cast<std::size_t>(now_.tensors));
    metadata.reserve(static_cast<std::size_t>(now_.pairs));
    std::string_view text = std::string_view(text_).substr(now_.unused), numbers = numbers_;
    const auto cut = [&](std::uint64_t n) {
      const std::string_view head = text.substr(0, static_cast<std::size_t>(n));
      text.remove_prefix(head.size());
      return head;
    };
    for (std::uint64_t i = 0; i < now_.pairs; ++i) {
      const std::string_view key = cut(take_number(numbers));
      metadata.push_back({key, cut(take_number(numbers))});
    }
    for (std::uint64_t i = 0; i < now_.tensors; ++i) {
      tensor_entry& made = tensors.emplace_back();
      made.name = cut(take_number(numbers));
      made.type = static_cast<dtype>(take_number(numbers));
      made.shape = extents.data() + extents.size();
      for (; take_number(numbers) != 0; ++made.rank) extents.push_back(take_number(numbers));
    }
  }

  /// A place to go back to if bytes that were taken turn out to be damaged. For that, nothing below is taken away or
  /// changed.
  struct mark {
    std::uint64_t at = 0;  ///< Bytes of the header taken so far.

   private:
    friend header_reader;
    enum class in : std::uint8_t {
      length,
      literal,
      string,
      escape,
      code,
      first_key,
      after_entry,
      first_pair,
      after_pair,
      dtype,
      first_extent,
      extent,
      offset,
      padding,
    };
    in state = in::length, after = in::first_key;
    enum class part : std::uint8_t {
      key,
      pair_key,
      pair_value
    } part = part::key;
    std::uint8_t count = 0;
    std::uint32_t code = 0;
    bool digits = false;
    std::uint64_t number = 0;
    std::string_view literal{};
    char name[16]{};  // of a dtype
    std::size_t text = 0, numbers = 0;  // bytes kept
    std::size_t begin = 0, key_bytes = 0;  // of the string that was begun; of the key before a value
    std::size_t unused = 0;  // bytes of text before the first pair or tensor
    std::uint64_t tensors = 0, pairs = 0, extents = 0;  // so far
    std::uint16_t rank = 0;  // of the last tensor, so far
  };
  /// The place after the last byte taken.
  mark here() const noexcept {
    mark m = now_;
    m.text = text_.size(), m.numbers = numbers_.size();
    return m;
  }
  /// Forgets what was taken after here() gave the mark.
  void back_to(const mark& m) {
    now_ = m;
    text_.resize(m.text), numbers_.resize(m.numbers);
  }

 private:
  using in = mark::in;
  using part = enum mark::part;
  // A pair is kept as the lengths of its texts; a tensor as the length of its name, its dtype, and a 1 before each
  // extent and a 0 behind the last. A number has seven bits in each byte, the lowest first, and the high bit in all
  // bytes but the last.
  void keep_number(std::uint64_t n) {
    for (; n >= 0x80; n >>= 7) numbers_.push_back(static_cast<char>((n & 0x7f) | 0x80));
    numbers_.push_back(static_cast<char>(n));
  }
  static std::uint64_t take_number(std::string_view& from) noexcept {
    std::uint64_t n = 0;
    for (unsigned shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(from.front());
      from.remove_prefix(1);
      n |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return n;
    }
  }

  result<void> bad() const noexcept { return failure(errc::bad_frame, now_.at); }
  void go(in state) noexcept { now_.state = state; }
  void expect(std::string_view literal, in after) noexcept {
    now_.literal = literal, now_.after = after, now_.state = in::literal;
  }
  void begin_string(part which) noexcept { now_.part = which, now_.begin = text_.size(), now_.state = in::string; }
  bool is_digit(char c) noexcept {
    if (c < '0' || c > '9' || (now_.digits && now_.number == 0)) return false;  // no leading zeros
    const auto digit = static_cast<std::uint64_t>(c - '0');
    if (now_.number > (~std::uint64_t{0} - digit) / 10) return false;
    now_.number = now_.number * 10 + digit;
    return now_.digits = true;
  }
  void begin_number(in state) noexcept { now_.number = 0, now_.digits = false, now_.state = state; }

  result<void> take(char c) {
    switch (now_.state) {
      case in::length:
        if (++now_.count == 8) expect("{", in::first_key);
        return {};
      case in::literal:
        if (c != now_.literal.front()) return bad();
        now_.literal.remove_prefix(1);
        if (now_.literal.empty()) enter(now_.after);
        return {};
      case in::string:
        if (c == '"') return end_string();
        if (c == '\\') return go(in::escape), result<void>{};
        if (static_cast<unsigned char>(c) < 0x20) return bad();
        text_.push_back(c);
        return {};
      case in::escape: return take_escape(c);
      case in::code:
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return bad();
        now_.code = now_.code * 16 + static_cast<std::uint32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
        if (++now_.count < 4) return {};
        if (now_.code >= 0x20) return bad();  // nothing else is written that way
        text_.push_back(static_cast<char>(now_.code));
        return go(in::string), result<void>{};
      case in::first_key:
        if (c == '}') return go(in::padding), result<void>{};
        if (c != '"') return bad();
        return begin_string(part::key), result<void>{};
      case in::after_entry:
        if (c == '}') return go(in::padding), result<void>{};
        if (c != ',') return bad();
        return expect("\"", in::string), result<void>{};
      case in::first_pair:
      case in::after_pair:
        if (c == '}') {
          now_.part = part::key;
          return go(in::after_entry), result<void>{};
        }
        if (now_.state == in::first_pair ? c != '"' : c != ',') return bad();
        if (c == '"') return begin_string(part::pair_key), result<void>{};
        now_.part = part::pair_key;
        return expect("\"", in::string), result<void>{};
      case in::dtype: return take_dtype(c);
      case in::first_extent:
        if (c == ']') return keep_number(0), expect(",\"data_offsets\":[", in::offset), result<void>{};
        now_.state = in::extent;
        return is_digit(c) ? result<void>{} : bad();
      case in::extent: return take_extent(c);
      case in::offset:  // where the tensor is follows from its place in the list; the schema's fingerprint and length
                        // settle that
        if (is_digit(c)) return {};
        if (!now_.digits || (c != ',' && c != ']') || (c == ',') == (now_.count != 0)) return bad();
        now_.count = c == ',';
        if (c == ',') return begin_number(in::offset), result<void>{};
        now_.part = part::key;
        return expect("}", in::after_entry), result<void>{};
      case in::padding: return c == ' ' ? result<void>{} : bad();
    }
    return bad();
  }

  void enter(in state) noexcept {
    now_.state = state;
    now_.count = 0;
    if (state == in::string) begin_string(now_.part);
    if (state == in::offset) begin_number(state);
    if (state == in::first_extent) begin_number(state);
  }

  result<void> take_escape(char c) {
    if (c == 'u') {
      now_.code = 0, now_.count = 0;
      return go(in::code), result<void>{};
    }
    const char meant = detail::json_unescape(c);
    if (meant == '\0') return bad();
    text_.push_back(meant);
    return go(in::string), result<void>{};
  }

  result<void> end_string() {
    switch (now_.part) {
      case part::key:
        if (now_.tensors == 0 && now_.pairs == 0 && std::string_view(text_).substr(now_.begin) == "__metadata__") {
          now_.unused = text_.size();
          return expect(":{", in::first_pair), result<void>{};
        }
        if (now_.tensors == most_tensors_) return failure(errc::too_large, now_.tensors);
        keep_number(text_.size() - now_.begin);
        ++now_.tensors;
        now_.rank = 0;
        return expect(":{\"dtype\":\"", in::dtype), result<void>{};
      case part::pair_key:
        now_.key_bytes = text_.size() - now_.begin;
        now_.part = part::pair_value;
        return expect(":\"", in::string), result<void>{};
      case part::pair_value:
        keep_number(now_.key_bytes);
        keep_number(text_.size() - now_.begin);
        ++now_.pairs;
        return go(in::after_pair), result<void>{};
    }
    return bad();
  }

  result<void> take_dtype(char c) {
    if (c != '"') {
      if (now_.count == sizeof now_.name) return bad();
      now_.name[now_.count++] = c;
      return {};
    }
    const auto type = dtype_from_string({now_.name, now_.count});
    now_.count = 0;
    if (!type) return failure(errc::unsupported_dtype, now_.at, std::string_view(text_).substr(now_.begin));
    keep_number(static_cast<std::uint64_t>(*type));
    return expect(",\"shape\":[", in::first_extent), result<void>{};
  }

  result<void> take_extent(char c) {
    if (is_digit(c)) return {};
    if (!now_.digits || (c != ',' && c != ']') || now_.rank == 0xffff) return bad();
    keep_number(1);
    keep_number(now_.number);
    ++now_.rank;
    ++now_.extents;
    if (c == ',') return begin_number(in::extent), result<void>{};
    keep_number(0);
    return expect(",\"data_offsets\":[", in::offset), result<void>{};
  }

  std::uint64_t most_tensors_;
  mark now_{};
  std::string text_;  // names, keys and values, one behind the other
  std::string numbers_;  // see keep_number()
};

}  // namespace tensorpull
