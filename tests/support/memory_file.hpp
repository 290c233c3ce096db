// A file in memory, for what reads files at positions; counts the reads, and ends earlier than it says if it is told
// to.
#pragma once

#include <tensorpull/core/checked.hpp>
#include <tensorpull/core/result.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace test {

struct memory_file {
  std::string content;
  mutable std::size_t reads = 0;

  std::uint64_t size() const noexcept { return content.size(); }
  tensorpull::result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const noexcept {
    ++reads;
    if (!tensorpull::range_within(offset, out.size(), content.size()))
      return tensorpull::failure(tensorpull::errc::io, offset);
    if (!out.empty()) std::memcpy(out.data(), content.data() + offset, out.size());
    return {};
  }
};

/// Numbers as files have them.
inline std::string little(std::uint64_t value, std::size_t n) {
  std::string s;
  for (std::size_t i = 0; i < n; ++i) s += static_cast<char>(value >> (8 * i) & 0xff);
  return s;
}

/// An npy file of that version with this text as header, ended and padded as NumPy does; `data` behind it.
inline std::string npy(std::string_view text, std::string_view data, unsigned version = 1) {
  const std::size_t prefix = version == 1 ? 10 : 12;
  std::string header(text);
  header.append(64 - (prefix + header.size() + 1) % 64, ' ');
  header += '\n';
  return "\x93NUMPY" + std::string{static_cast<char>(version), '\0'} + little(header.size(), version == 1 ? 2 : 4) +
         header + std::string(data);
}
inline std::string npy(std::string_view descr, std::string_view shape, bool fortran, std::string_view data) {
  return npy("{'descr': '" + std::string(descr) + "', 'fortran_order': " + (fortran ? "True" : "False") +
                 ", 'shape': " + std::string(shape) + ", }",
             data);
}

}  // namespace test
