// The header of an image: its length, and any range of its text, byte for byte what `safetensors.save` writes. Never
// held as a whole.
//
// {"__metadata__":{"key":"value"},"name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}, ...} and spaces to a
// multiple of 8, behind the text's length in 8 bytes. Strings are escaped as serde_json does it.
#pragma once

#include <tensorpull/core/digits.hpp>
#include <tensorpull/image/schema.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tensorpull {

namespace detail {

/// The character behind the backslash for this one: 0 for nothing to escape, 'u' for the long form.
constexpr char json_escape(char c) noexcept {
  switch (c) {
    case '"': return '"';
    case '\\': return '\\';
    case '\b': return 'b';
    case '\f': return 'f';
    case '\n': return 'n';
    case '\r': return 'r';
    case '\t': return 't';
    default: return static_cast<unsigned char>(c) < 0x20 ? 'u' : '\0';
  }
}

/// The character that a backslash and this letter stand for: the inverse of json_escape, 0 for any other letter.
constexpr char json_unescape(char letter) noexcept {
  for (const char c : std::string_view("\"\\\b\f\n\r\t"))
    if (json_escape(c) == letter) return c;
  return '\0';
}

/// Length of the string in JSON, without the quotes.
constexpr std::uint64_t json_length(std::string_view text) noexcept {
  std::uint64_t n = text.size();
  for (const char c : text)
    // Most characters need no escape: one comparison and a rare branch keep constant evaluation short.
    if (static_cast<unsigned char>(c) < 0x23 || c == '\\')
      if (const char escape = json_escape(c); escape != '\0') n += escape == 'u' ? 5 : 1;
  return n;
}

constexpr std::uint64_t decimal_length(std::uint64_t value) noexcept {
  std::uint64_t n = 1;
  for (; value >= 1000; value /= 1000) n += 3;
  return n + (value >= 10) + (value >= 100);
}

/// Length of `"name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}`, without a comma.
constexpr std::uint64_t entry_text_length(const tensor_entry& entry) noexcept {
  std::uint64_t n = json_length(entry.name) + to_string(entry.type).size() + decimal_length(entry.begin) +
                    decimal_length(entry.end);
  for (std::size_t i = 0; i < entry.rank; ++i) n += decimal_length(entry.shape[i]);
  return n + (entry.rank > 1 ? entry.rank - 1u : 0u) +
         std::string_view(R"("":{"dtype":"","shape":[],"data_offsets":[,]})").size();
}

/// A value may be megabytes, such as the digests of all tensors, and is written in windows: it is counted once.
constexpr std::uint64_t value_text_length(const metadata_entry& pair) noexcept {
  return pair.text_bytes != 0 ? pair.text_bytes : json_length(pair.value);
}
constexpr std::uint64_t pair_text_length(const metadata_entry& pair) noexcept {
  return json_length(pair.key) + value_text_length(pair) + std::string_view(R"("":"")").size();
}

/// Length of `"__metadata__":{...}`, without a comma; 0 without metadata.
constexpr std::uint64_t metadata_text_length(std::span<const metadata_entry> pairs) noexcept {
  if (pairs.empty()) return 0;
  std::uint64_t n = std::string_view(R"("__metadata__":{})").size() + pairs.size() - 1;
  for (std::size_t i = 0; i < pairs.size(); ++i) n += pair_text_length(pairs[i]);
  return n;
}

/// Length of the whole header from the lengths of its parts: `members` of them, `length` characters together.
constexpr std::uint64_t header_bytes_of(std::uint64_t members, std::uint64_t length) noexcept {
  return (8 + 2 + length + (members > 1 ? members - 1 : 0) + 7) & ~std::uint64_t{7};
}

/// Where the text of the first entry begins in the header.
constexpr std::uint64_t first_text_at(std::span<const metadata_entry> metadata) noexcept {
  return 8 + 1 + metadata_text_length(metadata) + (metadata.empty() ? 0 : 1);
}

/// The last tensor whose text is known to begin at `offset` of the header or before; tensor_count if none is. O(log n).
constexpr std::size_t text_entry_at(const image_schema& schema, std::uint64_t offset) noexcept {
  std::size_t first = 0, last = schema.tensor_count;
  while (first < last) {
    const std::size_t middle = first + (last - first) / 2;
    if (schema.tensors[middle].text_at <= offset) first = middle + 1;
    else last = middle;
  }
  return first != 0 && schema.tensors[first - 1].text_at != 0 ? first - 1 : schema.tensor_count;
}

/// Takes the whole text in pieces and keeps what falls into a window.
class text_window {
 public:
  constexpr text_window(std::uint64_t offset, std::span<std::byte> out) noexcept : skip_(offset), out_(out) {}

  constexpr void put(std::string_view text) noexcept {
    if (skips(text.size())) return;
    text = text.substr(static_cast<std::size_t>(skip_), out_.size() - written_);
    for (const char c : text) put_now(c);
    skip_ = 0;
  }
  constexpr void put(char c) noexcept {
    if (!skips(1)) put_now(c);
  }
  constexpr void put_string(std::string_view text) noexcept {
    put('"');
    for (const char c : text) {
      if (full()) return;
      const char escape = json_escape(c);
      if (escape == '\0') put(c);
      else if (put('\\'), put(escape); escape == 'u') {
        put("00");
        put(hex_digit(static_cast<unsigned char>(c) >> 4));
        put(hex_digit(static_cast<unsigned char>(c)));
      }
    }
    put('"');
  }
  constexpr void put_number(std::uint64_t value) noexcept {
    const decimal digits(value);
    put(digits.view());
  }
  /// Whether the next n bytes lie before the window and have just been passed over.
  constexpr bool skips(std::uint64_t n) noexcept {
    if (n > skip_) return false;
    skip_ -= n;
    return true;
  }
  constexpr bool full() const noexcept { return written_ == out_.size(); }
  constexpr std::size_t written() const noexcept { return written_; }

 private:
  constexpr void put_now(char c) noexcept {
    if (!full()) out_[written_++] = static_cast<std::byte>(c);
  }

  std::uint64_t skip_;
  std::span<std::byte> out_;
  std::size_t written_ = 0;
};

constexpr void put_metadata(text_window& window, std::span<const metadata_entry> pairs) noexcept {
  if (pairs.empty() || window.skips(metadata_text_length(pairs))) return;
  window.put(R"("__metadata__":{)");
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const metadata_entry& pair = pairs[i];
    if (i != 0) window.put(',');
    if (window.skips(pair_text_length(pair))) continue;
    window.put_string(pair.key);
    window.put(':');
    if (pair.text_bytes != pair.value.size()) {
      window.put_string(pair.value);
    } else {  // it has no escapes, so what lies before the window is passed over at once
      window.put('"');
      window.put(pair.value);
      window.put('"');
    }
  }
  window.put('}');
}

constexpr void put_entry(text_window& window, const tensor_entry& entry) noexcept {
  if (window.skips(entry_text_length(entry))) return;
  window.put_string(entry.name);
  window.put(R"(:{"dtype":")");
  window.put(to_string(entry.type));
  window.put(R"(","shape":[)");
  for (std::size_t i = 0; i < entry.rank; ++i) {
    if (i != 0) window.put(',');
    window.put_number(entry.shape[i]);
  }
  window.put(R"(],"data_offsets":[)");
  window.put_number(entry.begin);
  window.put(',');
  window.put_number(entry.end);
  window.put("]}");
}

}  // namespace detail

/// The length of the header, its 8 leading bytes included, from entries whose positions are set. O(bytes of names).
constexpr std::uint64_t header_length(std::span<const tensor_entry> entries,
                                      std::span<const metadata_entry> metadata) noexcept {
  std::uint64_t n = detail::metadata_text_length(metadata);
  for (const tensor_entry& entry : entries) n += detail::entry_text_length(entry);
  return detail::header_bytes_of(entries.size() + (metadata.empty() ? 0 : 1), n);
}

/// Writes the header's bytes from `offset` on until `out` is full or the header ends; returns how many. No memory
/// beyond `out`. O(log tensors) and the length of what is written; if the entries do not know where their text begins,
/// or the window begins within the metadata, a pass over the names or the metadata before it.
constexpr std::size_t write_header(const image_schema& schema, std::uint64_t offset,
                                   std::span<std::byte> out) noexcept {
  if (offset >= schema.header_bytes) return 0;
  out = out.first(detail::smaller(out.size(), schema.header_bytes - offset));
  const std::size_t begun = detail::text_entry_at(schema, offset);
  const bool within = begun < schema.tensor_count;
  detail::text_window window(within ? offset - schema.tensors[begun].text_at : offset, out);
  if (!within) {
    const std::uint64_t text_bytes = schema.header_bytes - 8;
    for (unsigned shift = 0; shift < 64; shift += 8) window.put(static_cast<char>(text_bytes >> shift & 0xff));
    window.put('{');
    detail::put_metadata(window, schema.pairs());
  }
  bool comma = !within && schema.metadata_count != 0;
  for (std::size_t i = within ? begun : 0; i < schema.tensor_count && !window.full(); ++i) {
    if (comma) window.put(',');
    comma = true;
    detail::put_entry(window, schema.tensors[i]);
  }
  window.put('}');
  while (!window.full()) window.put(' ');
  return window.written();
}

}  // namespace tensorpull
