// Reads the header of an image while it arrives, a piece at a time, and keeps its content: names, dtypes, shapes,
// metadata. The JSON text is never held. Only the writer's spelling (image/header.hpp) is accepted, apart from the
// escapes in strings; the rules are those of image/detail/header_parser.hpp. The length and the data offsets are passed
// over: they follow from the tensors, and the user of the header compares its fingerprint and its sizes.
//
// The reader of safetensors files (component `safetensors`) has the same rules for any spelling, and puts another table
// together: a file is at hand as a whole and is read twice, so its table is measured first. This reader can stop after
// any byte and go back to an earlier one.
#pragma once

#include <tensorpull/image/detail/header_parser.hpp>
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

  /// Takes the next bytes of the header, its 8 leading bytes first. Errors: bad_frame with the position (no header of
  /// an image); unsupported_dtype with the tensor's name; too_large (more tensors than allowed). Throws std::bad_alloc.
  result<void> take(std::span<const std::byte> bytes) {
    for (const std::byte b : bytes) {
      if (now_.at >= 8) {
        kept_text to{*this};
        if (const auto taken = now_.parser.take(static_cast<char>(b), to); !taken) return refused(taken.error().code);
      }
      ++now_.at;
    }
    return {};
  }
  /// Whether nothing but padding can follow.
  bool complete() const noexcept { return now_.parser.complete(); }

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

  /// A state to go back to if bytes that were taken turn out to be damaged. For that, nothing below is taken away or
  /// changed.
  struct mark {
    std::uint64_t at = 0;  ///< Bytes of the header taken so far.

   private:
    friend header_reader;
    detail::header_parser<detail::header_spelling::canonical> parser;
    std::size_t text = 0, numbers = 0;  // bytes kept
    std::size_t begin = 0, key_bytes = 0;  // of the string that was begun; of the key before a value
    std::size_t unused = 0;  // bytes of text before the first pair or tensor
    std::uint64_t tensors = 0, pairs = 0, extents = 0;  // so far
    std::uint16_t rank = 0;  // of the last tensor, so far
  };
  /// The position after the last byte taken.
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

  result<void> refused(errc code) const noexcept {
    if (code == errc::too_large) return failure(code, now_.tensors);
    const bool named = code == errc::unsupported_dtype;
    return failure(code, now_.at, named ? std::string_view(text_).substr(now_.begin) : std::string_view());
  }

  /// The parser's sink. A string begins where the one before it ended.
  struct kept_text {
    header_reader& to;

    void put(char c) { to.text_.push_back(c); }
    result<void> metadata() noexcept {
      to.now_.unused = to.now_.begin = to.text_.size();
      return {};
    }
    result<void> pair_key() noexcept {
      to.now_.key_bytes = to.end_string();
      return {};
    }
    result<void> pair_value() {
      to.keep_number(to.now_.key_bytes);
      to.keep_number(to.end_string());
      ++to.now_.pairs;
      return {};
    }
    result<void> name() {
      if (to.now_.tensors == to.most_tensors_) return failure(errc::too_large);
      to.keep_number(to.text_.size() - to.now_.begin);
      ++to.now_.tensors;
      to.now_.rank = 0;
      return {};
    }
    result<void> type(dtype of) {
      to.keep_number(static_cast<std::uint64_t>(of));
      return {};
    }
    result<void> extent(std::uint64_t n) {
      if (to.now_.rank == 0xffff) return failure(errc::bad_frame);
      to.keep_number(1);
      to.keep_number(n);
      ++to.now_.rank;
      ++to.now_.extents;
      return {};
    }
    /// The tensor's offset follows from its position in the list; the schema's fingerprint and length settle that.
    result<void> tensor(std::uint64_t, std::uint64_t) {
      to.keep_number(0);
      to.now_.begin = to.text_.size();
      return {};
    }
  };
  /// How long the string was that ends here.
  std::size_t end_string() noexcept {
    const std::size_t begun = now_.begin;
    now_.begin = text_.size();
    return now_.begin - begun;
  }

  std::uint64_t most_tensors_;
  mark now_{};
  std::string text_;  // names, keys and values, one behind the other
  std::string numbers_;  // see keep_number()
};

}  // namespace tensorpull
