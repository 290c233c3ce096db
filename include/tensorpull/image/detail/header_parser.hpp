// The rules of a safetensors header, once: what is JSON, which value may stand where, which fields a tensor has.
// Decides nothing about memory: a sink keeps what it is told. For any file (tensors/safetensors), and in the one
// spelling that this library writes for an image that arrives (image/header_reader.hpp).
//
// In any spelling it accepts what Python's safetensors 0.8 accepts and its specification allows, and is as strict as
// the specification if that is stricter: one field means one thing, a tensor is an object, a dtype a text. Fields that
// the format does not know are read over, as there.
#pragma once

#include <tensorpull/core/dtype.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/image/detail/json_number.hpp>
#include <tensorpull/image/header.hpp>
#include <tensorpull/image/utf8.hpp>

#include <cstdint>
#include <string_view>

namespace tensorpull::detail {

enum class header_spelling : std::uint8_t {
  any,        ///< whatever JSON allows, in any order, with unknown fields
  canonical,  ///< what write_header() writes, apart from the escapes in strings
};

/// Takes the text a character at a time, by iteration, so no nesting overflows a stack. All of its state is in it: a
/// copy is a state to go back to. `Sink` has put(character) for the decoded texts, and then is told what they were:
///  - metadata(): a name, which was `__metadata__`. Its pairs follow.
///  - pair_key(), pair_value(): of a pair of metadata
///  - name(): of a tensor. Its type(dtype) and each extent(number) follow, in the order of the text.
///  - tensor(begin, end): all of the tensor has been told, its two data offsets last.
/// All of them give result<void>, and an error is passed on. An exception of put() is passed on.
template <header_spelling Spelling>
class header_parser {
 public:
  /// The error for text that is not a header.
  static constexpr errc malformed = Spelling == header_spelling::any ? errc::bad_file : errc::bad_frame;

  /// Errors, without a position: `malformed`; unsupported_dtype; duplicate_name (`__metadata__`); those of the sink.
  template <class Sink>
  result<void> take(char c, Sink& sink) {
    switch (lexing_) {
      case lexing::between: return take_token(c, sink);
      case lexing::string: return take_character(c, sink);
      case lexing::escape: return take_escape(c, sink);
      case lexing::code: return take_code(c, sink);
      case lexing::word: return take_word(c);
      default: return take_number(c, sink);
    }
  }
  /// Whether nothing but padding can follow.
  bool complete() const noexcept { return place_ == place::end; }
  /// Whether what is read belongs to the member whose name was told last.
  bool within_member() const noexcept {
    if (place_ == place::header) return next_ == next::colon || takes_value();
    return place_ != place::start && place_ != place::end;
  }

 private:
  static constexpr bool any = Spelling == header_spelling::any;
  using number = json_number<any>;
  /// The reference library reads 127 levels, of which the header and the tensor are two.
  static constexpr std::uint8_t deepest_unknown = 125;

  /// The value that it is in.
  enum class place : std::uint8_t {
    start,
    header,
    metadata,
    tensor,
    shape,
    offsets,
    unknown,
    end
  };
  /// The next token.
  enum class next : std::uint8_t {
    value,
    value_or_end,
    key,
    key_or_end,
    colon,
    comma_or_end
  };
  enum class lexing : std::uint8_t {
    between,
    string,
    escape,
    code,
    word,
    number
  };
  enum class field : std::uint8_t {
    dtype,
    shape,
    offsets,
    unknown
  };

  static result<void> bad() noexcept { return failure(malformed); }

  template <class Sink>
  result<void> take_token(char c, Sink& sink) {
    if (place_ == place::start) return c == '{' ? open(true) : bad();
    if (place_ == place::end) return c == ' ' ? result<void>{} : bad();
    if (any && (c == ' ' || c == '\n' || c == '\r' || c == '\t')) return {};
    switch (c) {
      case '"': return begin_string();
      case '{': return takes_value() ? open(true) : bad();
      case '[': return takes_value() ? open(false) : bad();
      case '}': return close(true, sink);
      case ']': return close(false, sink);
      case ',':
        if (next_ != next::comma_or_end) return bad();
        next_ = in_object() ? next::key : next::value;
        return {};
      case ':':
        if (next_ != next::colon) return bad();
        next_ = next::value;
        return {};
      default: return takes_value() ? begin_scalar(c) : bad();
    }
  }
  bool takes_value() const noexcept { return next_ == next::value || next_ == next::value_or_end; }
  bool in_object() const noexcept {
    if (place_ == place::unknown) return (objects_[depth_ / 64] >> (depth_ % 64) & 1) != 0;
    return place_ != place::shape && place_ != place::offsets;
  }
  /// Whether the next value is that of a field that the format does not know, or within one.
  bool is_unknown() const noexcept {
    return place_ == place::unknown || (place_ == place::tensor && field_ == field::unknown);
  }

  result<void> open(bool object) noexcept {
    next_ = object ? next::key_or_end : next::value_or_end;
    switch (place_) {
      case place::start: place_ = place::header; return {};
      case place::header:
        if (!object) return bad();
        place_ = is_metadata_ ? place::metadata : place::tensor;
        has_ = 0;
        return {};
      case place::tensor:
        if (field_ == field::unknown) break;
        if (object || field_ == field::dtype) return bad();
        place_ = field_ == field::shape ? place::shape : place::offsets;
        offset_count_ = 0;
        return {};
      case place::unknown: break;
      default: return bad();
    }
    if (depth_ == deepest_unknown) return bad();
    ++depth_;
    place_ = place::unknown;
    const std::uint64_t bit = std::uint64_t{1} << (depth_ % 64);
    objects_[depth_ / 64] = object ? objects_[depth_ / 64] | bit : objects_[depth_ / 64] & ~bit;
    return {};
  }
  template <class Sink>
  result<void> close(bool object, Sink& sink) {
    const bool ends = next_ == next::comma_or_end || next_ == (object ? next::key_or_end : next::value_or_end);
    if (!ends || object != in_object()) return bad();
    next_ = next::comma_or_end;
    switch (place_) {
      case place::header: place_ = place::end; return {};
      case place::metadata: place_ = place::header; return {};
      case place::tensor:
        if (has_ != all_fields) return bad();
        if (const auto told = sink.tensor(offsets_[0], offsets_[1]); !told) return told;
        place_ = place::header;
        return {};
      case place::offsets:
        if (offset_count_ != 2) return bad();
        [[fallthrough]];
      case place::shape: place_ = place::tensor; return {};
      default:
        if (--depth_ == 0) place_ = place::tensor;
        return {};
    }
  }

  // Strings

  result<void> begin_string() noexcept {
    is_key_ = next_ == next::key || next_ == next::key_or_end;
    const bool is_text = place_ == place::metadata || is_unknown() ||
                         (place_ == place::tensor && field_ == field::dtype);
    if (!is_key_ && (!takes_value() || !is_text)) return bad();
    word_bytes_ = 0;
    lexing_ = lexing::string;
    return {};
  }
  template <class Sink>
  result<void> take_character(char c, Sink& sink) {
    if (any && surrogate_ != 0 && c != '\\') return bad();
    if (utf8_.whole()) {
      if (c == '"') return end_string(sink);
      if (c == '\\') {
        lexing_ = lexing::escape;
        return {};
      }
      if (static_cast<unsigned char>(c) < 0x20) return bad();
    }
    if (any && !utf8_.take(c)) return bad();
    put(c, sink);
    return {};
  }
  template <class Sink>
  result<void> take_escape(char c, Sink& sink) {
    if (c == 'u') {
      code_ = 0;
      code_digits_ = 0;
      lexing_ = lexing::code;
      return {};
    }
    const char meant = any && c == '/' ? c : json_unescape(c);
    if (meant == '\0' || surrogate_ != 0) return bad();
    put(meant, sink);
    lexing_ = lexing::string;
    return {};
  }
  template <class Sink>
  result<void> take_code(char c, Sink& sink) {
    const bool capital = any && c >= 'A' && c <= 'F';
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || capital)) return bad();
    const int digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
    code_ = static_cast<std::uint16_t>(code_ * 16 + digit);
    if (++code_digits_ < 4) return {};
    lexing_ = lexing::string;
    if (!any && code_ >= 0x20) return bad();  // nothing else is written that way
    const bool low = code_ >= 0xdc00 && code_ <= 0xdfff;
    if (low != (surrogate_ != 0)) return bad();
    if (code_ >= 0xd800 && code_ <= 0xdbff) {
      surrogate_ = code_;
      return {};
    }
    std::uint32_t point = code_;
    if (low) point = 0x10000 + ((surrogate_ & 0x3ffu) << 10) + (code_ & 0x3ffu);
    surrogate_ = 0;
    put_point(point, sink);
    return {};
  }
  template <class Sink>
  void put_point(std::uint32_t point, Sink& sink) {
    if (point < 0x80) return put(static_cast<char>(point), sink);
    const auto tail = [&](unsigned shift) { put(static_cast<char>(0x80 | (point >> shift & 0x3f)), sink); };
    if (point >= 0x10000) {
      put(static_cast<char>(0xf0 | point >> 18), sink);
      tail(12);
      tail(6);
    } else if (point >= 0x800) {
      put(static_cast<char>(0xe0 | point >> 12), sink);
      tail(6);
    } else {
      put(static_cast<char>(0xc0 | point >> 6), sink);
    }
    tail(0);
  }
  /// The beginning of a string is kept here, as long as any word that means something. The sink is given what it keeps.
  template <class Sink>
  void put(char c, Sink& sink) {
    if (word_bytes_ < sizeof word_) word_[word_bytes_] = c;
    if (word_bytes_ <= sizeof word_) ++word_bytes_;
    if (place_ == place::metadata || place_ == place::header) sink.put(c);
  }
  std::string_view word() const noexcept {
    return word_bytes_ <= sizeof word_ ? std::string_view(word_, word_bytes_) : std::string_view();
  }

  template <class Sink>
  result<void> end_string(Sink& sink) {
    lexing_ = lexing::between;
    next_ = is_key_ ? next::colon : next::comma_or_end;
    switch (place_) {
      case place::header: return end_name(sink);
      case place::metadata: return is_key_ ? sink.pair_key() : sink.pair_value();
      case place::tensor:
        if (is_key_) return begin_field();
        return field_ == field::dtype ? end_dtype(sink) : result<void>{};
      default: return {};
    }
  }
  template <class Sink>
  result<void> end_name(Sink& sink) {
    is_metadata_ = word() == "__metadata__" && (any || !has_members_);
    has_members_ = true;
    if (!is_metadata_) return sink.name();
    if (has_metadata_) return failure(errc::duplicate_name);
    has_metadata_ = true;
    return sink.metadata();
  }
  result<void> begin_field() noexcept {
    field_ = field::unknown;
    if (word() == "dtype") field_ = field::dtype;
    if (word() == "shape") field_ = field::shape;
    if (word() == "data_offsets") field_ = field::offsets;
    if (field_ == field::unknown) return any ? result<void>{} : bad();
    const auto bit = static_cast<std::uint8_t>(1u << static_cast<unsigned>(field_));
    // in canonical order there were all before it, and no other
    if ((has_ & bit) != 0 || (!any && has_ != bit - 1)) return bad();
    has_ = static_cast<std::uint8_t>(has_ | bit);
    return {};
  }
  template <class Sink>
  result<void> end_dtype(Sink& sink) {
    const auto type = dtype_from_string(word());
    return type ? sink.type(*type) : failure(errc::unsupported_dtype);
  }

  // Numbers and words

  result<void> begin_scalar(char c) noexcept {
    const bool counts = place_ == place::shape || place_ == place::offsets;
    if (!counts && !is_unknown()) return bad();
    if (c == '-' && counts) return bad();
    if (!number_.begin(c)) return begin_word(c);
    lexing_ = lexing::number;
    return {};
  }
  result<void> begin_word(char c) noexcept {
    if (!is_unknown()) return bad();
    rest_ = nullptr;
    if (c == 't') rest_ = "rue";
    if (c == 'f') rest_ = "alse";
    if (c == 'n') rest_ = "ull";
    lexing_ = lexing::word;
    return rest_ != nullptr ? result<void>{} : bad();
  }
  result<void> take_word(char c) noexcept {
    if (c != *rest_) return bad();
    if (*++rest_ == '\0') {
      lexing_ = lexing::between;
      next_ = next::comma_or_end;
    }
    return {};
  }

  template <class Sink>
  result<void> take_number(char c, Sink& sink) {
    const auto how = number_.take(c);
    if (how == number::step::taken) return {};
    if (how == number::step::wrong) return bad();
    if (const auto told = tell_number(sink); !told) return told;
    lexing_ = lexing::between;
    next_ = next::comma_or_end;
    return take_token(c, sink);
  }
  template <class Sink>
  result<void> tell_number(Sink& sink) {
    if (is_unknown()) return number_.is_finite() ? result<void>{} : bad();
    if (!number_.is_count()) return bad();
    if (place_ == place::shape) return sink.extent(number_.value());
    if (offset_count_ == 2) return bad();
    offsets_[offset_count_++] = number_.value();
    return {};
  }

  static constexpr std::uint8_t all_fields = 7;

  place place_ = place::start;
  next next_ = next::value;
  lexing lexing_ = lexing::between;
  field field_ = field::unknown;
  bool is_key_ = false, is_metadata_ = false, has_members_ = false, has_metadata_ = false;
  std::uint8_t has_ = 0;  // fields of this tensor: a bit for each
  std::uint8_t depth_ = 0;  // within a field that the format does not know
  std::uint8_t offset_count_ = 0;
  utf8_octets utf8_{};
  std::uint8_t code_digits_ = 0;
  std::uint16_t code_ = 0, surrogate_ = 0;
  std::uint8_t word_bytes_ = 0;
  char word_[16]{};
  number number_{};
  std::uint64_t offsets_[2]{};
  std::uint64_t objects_[2]{};  // of each level within an unknown field: whether it is an object
  const char* rest_ = nullptr;  // of a word
};

}  // namespace tensorpull::detail
