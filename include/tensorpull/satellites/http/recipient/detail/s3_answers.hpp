// The XML with which S3 answers: elements and text, and nothing that could make little text large.
#pragma once

#include <tensorpull/core/digits.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/satellites/http/detail/characters.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensorpull::detail {

/// Text between two tags, with its characters for `&lt;` and the like; of numbers only those of ASCII. A reference to
/// anything else stays as it is written. Throws std::bad_alloc.
inline std::string xml_text(std::string_view text) {
  struct named {
    std::string_view name;
    char is;
  };
  constexpr named names[]{{"lt", '<'}, {"gt", '>'}, {"amp", '&'}, {"quot", '"'}, {"apos", '\''}};
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    out += text[at];
    const std::size_t end = text[at] == '&' ? text.find(';', at) : text.npos;
    if (end == text.npos) continue;
    const std::string_view name = text.substr(at + 1, end - at - 1);
    optional<std::uint64_t> number;
    if (name.starts_with("#x")) number = hex_number(name.substr(2));
    else if (name.starts_with("#")) number = decimal_number(name.substr(1));
    const auto found = std::ranges::find(names, name, &named::name);
    if (found != std::end(names)) out.back() = found->is;
    else if (number && *number > 0 && *number < 0x80) out.back() = static_cast<char>(*number);
    else continue;
    at = end;
  }
  return out;
}
/// The other way: text that can stand between two tags.
inline std::string xml_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') out += "&amp;";
    else if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else out += c;
  }
  return out;
}

/// Calls leaf(name, text, depth) for each element without others inside, and closed(name, depth) behind each that has
/// some, in their order; the root has depth 0. Text is as it is written; attributes are passed over. False: it is not
/// well-formed, nests deeper than any answer of S3, or declares what would need a reader of XML. Throws std::bad_alloc.
template <class Leaf, class Closed>
bool read_xml(std::string_view text, Leaf leaf, Closed closed) {
  struct element {
    std::string_view name;
    std::size_t inside;
    bool parent;
  };
  constexpr std::size_t deepest = 8;
  std::vector<element> open;
  bool root = false;
  for (std::size_t at = 0; (at = text.find('<', at)) != text.npos;) {
    if (text.substr(at).starts_with("<?")) {
      at = text.find("?>", at);
      if (at == text.npos) return false;
      continue;
    }
    char quote = 0;
    std::size_t end = at + 1;
    for (; end < text.size() && (quote != 0 || text[end] != '>'); ++end)
      if (quote == text[end]) quote = 0;
      else if (quote == 0 && (text[end] == '"' || text[end] == '\'')) quote = text[end];
    if (end == text.size()) return false;
    std::string_view tag = text.substr(at + 1, end - at - 1);
    const bool closes = tag.starts_with('/'), empty = !closes && tag.ends_with('/');
    if (closes) tag.remove_prefix(1);
    if (empty) tag.remove_suffix(1);
    tag = tag.substr(0, tag.find_first_of(" \t\r\n"));
    if (tag.empty() || tag.front() == '!') return false;
    if (closes) {
      if (open.empty() || open.back().name != tag) return false;
      const element e = open.back();
      open.pop_back();
      if (e.parent) closed(tag, open.size());
      else leaf(tag, text.substr(e.inside, at - e.inside), open.size());
    } else {
      if (open.empty() ? root : open.size() == deepest) return false;
      root = true;
      if (!open.empty()) open.back().parent = true;
      if (empty) leaf(tag, std::string_view(), open.size());
      else open.push_back({tag, end + 1, false});
    }
    at = end + 1;
  }
  return root && open.empty();
}

/// One part that a store has.
struct s3_part {
  std::uint64_t number = 0, bytes = 0;
  std::string etag{};  ///< with its quotes, if it has some
};
/// A page of the parts of an upload.
struct s3_parts_page {
  std::vector<s3_part> parts{};
  bool truncated = false;  ///< there are more
  std::uint64_t next = 0;  ///< the number behind which they are

  /// False: it is none.
  bool read(std::string_view xml) {
    s3_part part;
    bool is = false, numbers = true;
    const auto number = [&](std::string_view text, std::uint64_t& to) {
      const auto n = decimal_number(trimmed(text));
      numbers = numbers && n && *n != beyond_64_bits;
      to = n.value_or(0);
    };
    const bool reads = read_xml(
        xml,
        [&](std::string_view name, std::string_view text, std::size_t depth) {
          if (depth == 1 && name == "IsTruncated") truncated = trimmed(text) == "true";
          if (depth == 1 && name == "NextPartNumberMarker" && !trimmed(text).empty()) number(text, next);
          if (depth != 2) return;
          if (name == "PartNumber") number(text, part.number);
          if (name == "Size") number(text, part.bytes);
          if (name == "ETag") part.etag = xml_text(trimmed(text));
        },
        [&](std::string_view name, std::size_t depth) {
          if (depth == 1 && name == "Part") parts.push_back(std::exchange(part, {}));
          is = is || (depth == 0 && name.starts_with("ListParts"));
        });
    return reads && is && numbers;
  }
};

/// The IDs of the uploads of one key that have begun and not ended, the oldest first. Nothing: it is no such list.
inline std::optional<std::vector<std::string>> s3_uploads(std::string_view xml, std::string_view key) {
  std::vector<std::string> out;
  std::string its_key, id;
  bool is = false;
  const bool reads = read_xml(
      xml,
      [&](std::string_view name, std::string_view text, std::size_t depth) {
        if (depth == 0) is = name.starts_with("ListMultipartUploads");
        if (depth == 2 && name == "Key") its_key = xml_text(text);
        if (depth == 2 && name == "UploadId") id = xml_text(trimmed(text));
      },
      [&](std::string_view name, std::size_t depth) {
        if (depth == 1 && name == "Upload") {
          if (its_key == key) out.push_back(std::move(id));
          its_key.clear(), id.clear();
        }
        is = is || (depth == 0 && name.starts_with("ListMultipartUploads"));
      });
  if (!reads || !is) return {};
  return out;
}

/// The text of the element `name` right below a root whose name begins so: what follows differs between stores.
/// Nothing: there is none.
inline std::optional<std::string> s3_answer(std::string_view xml, std::string_view root, std::string_view name) {
  std::optional<std::string> out;
  bool is = false;
  const bool reads = read_xml(
      xml,
      [&](std::string_view n, std::string_view text, std::size_t depth) {
        if (depth == 1 && n == name) out = xml_text(trimmed(text));
      },
      [&](std::string_view n, std::size_t depth) { is = is || (depth == 0 && n.starts_with(root)); });
  return reads && is ? out : std::nullopt;
}

}  // namespace tensorpull::detail
