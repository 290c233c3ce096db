// Which names can be those of files below a directory, on any system: they are another party's.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/image/schema.hpp>
#include <tensorpull/image/utf8.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tensorpull::detail {

/// How many directories deep a file may be.
inline constexpr std::size_t deepest_file = 32;

/// Whether `name` leads to a file below a directory wherever it is used: relative, UTF-8, its parts apart by single
/// slashes, none of them `.` or `..`, no control characters, and no backslash, which parts names elsewhere.
constexpr bool is_file_name(std::string_view name) noexcept {
  if (name.size() > 1024 || name == "__metadata__" || !is_utf8(name)) return false;
  std::size_t depth = 0;
  for (std::size_t at = 0; at <= name.size(); ++depth) {
    const std::size_t end = std::min(name.find('/', at), name.size());
    const std::string_view part = name.substr(at, end - at);
    if (part.empty() || part == "." || part == ".." || part.size() > 255 || depth == deepest_file) return false;
    for (const char c : part)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\') return false;
    at = end + 1;
  }
  // a drive of Windows
  return name.size() < 2 || name[1] != ':';
}

/// A name with small letters in place of A to Z: names that are alike then are one on many file systems.
inline std::string folded(std::string_view name) {
  std::string out(name);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

/// Errors, with a name: invalid_argument (it is none, see is_file_name); duplicate_name (another one differs in case
/// alone, or one is a file and a directory). Throws std::bad_alloc.
inline result<void> check_file_names(const image_schema& schema) {
  struct row {
    std::string name;
    std::size_t of;
  };
  std::vector<row> rows;
  rows.reserve(schema.tensor_count);
  for (std::size_t i = 0; i < schema.tensor_count; ++i) {
    const std::string_view name = schema.tensors[i].name;
    if (!is_file_name(name)) return failure(errc::invalid_argument, i, name);
    rows.push_back({folded(name), i});
  }
  std::sort(rows.begin(), rows.end(), [](const row& a, const row& b) { return a.name < b.name; });
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string& name = rows[i].name;
    const auto refuse = [&] { return failure(errc::duplicate_name, rows[i].of, schema.tensors[rows[i].of].name); };
    if (i > 0 && rows[i - 1].name == name) return refuse();
    for (std::size_t slash = name.find('/'); slash != name.npos; slash = name.find('/', slash + 1)) {
      const std::string_view above = std::string_view(name).substr(0, slash);
      const auto there = std::lower_bound(rows.begin(), rows.end(), above,
                                          [](const row& a, std::string_view b) { return a.name < b; });
      if (there != rows.end() && there->name == above) return refuse();
    }
  }
  return {};
}

}  // namespace tensorpull::detail
