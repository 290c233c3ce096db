// Makes zip archives field by field, so that a test can make wrong ones.
#pragma once

#include "memory_file.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace test {

/// CRC-32, bit by bit.
inline std::uint32_t crc32_of(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

struct zip_file {
  std::string name, content;
  unsigned flags = 0, method = 0, version = 20;
  bool zip64 = false;              // sizes and offset in the ZIP64 field
  std::string header_name = name;  // in the file's own header
  std::string header_extra = {}, extra = {}, comment = {};
  std::uint64_t size = content.size(), packed = content.size();
  std::int64_t moved = 0;  // added to the offset of its header
  std::string unpacked = content;  // whose checksum it has
};

struct zip_end {
  std::string comment = {};
  bool zip64 = false;
  std::int64_t length_change = 0, start_change = 0;
};

inline std::string zip(const std::vector<zip_file>& files, const zip_end& end = {}, std::string_view before = {}) {
  std::string out(before), directory;
  for (const zip_file& f : files) {
    const std::uint64_t at = out.size() - before.size() + static_cast<std::uint64_t>(f.moved);
    const std::string crc = little(crc32_of(f.unpacked), 4);
    out += "PK\3\4" + little(f.version, 2) + little(f.flags, 2) + little(f.method, 2) + little(0, 4) + crc +
           little(f.packed, 4) + little(f.size, 4) + little(f.header_name.size(), 2) +
           little(f.header_extra.size(), 2) + f.header_name + f.header_extra + f.content;
    const std::string wide = f.zip64 ? little(1, 2) + little(24, 2) + little(f.size, 8) + little(f.packed, 8) +
                                           little(at, 8)
                                     : std::string();
    const auto field = [&](std::uint64_t value) { return little(f.zip64 ? 0xffffffff : value, 4); };
    directory += "PK\1\2" + little(f.version, 2) + little(f.version, 2) + little(f.flags, 2) + little(f.method, 2) +
                 little(0, 4) + crc + field(f.packed) + field(f.size) + little(f.name.size(), 2) +
                 little(wide.size() + f.extra.size(), 2) + little(f.comment.size(), 2) + little(0, 2) + little(0, 2) +
                 little(0, 4) + field(at) + f.name + wide + f.extra + f.comment;
  }
  const std::uint64_t start = out.size() - before.size() + static_cast<std::uint64_t>(end.start_change);
  const std::uint64_t length = directory.size() + static_cast<std::uint64_t>(end.length_change),
                      place = out.size() + directory.size();
  out += directory;
  if (end.zip64)
    out += "PK\6\6" + little(44, 8) + little(45, 2) + little(45, 2) + little(0, 8) + little(files.size(), 8) +
           little(files.size(), 8) + little(length, 8) + little(start, 8) + "PK\6\7" + little(0, 4) + little(place, 8) +
           little(1, 4);
  return out + "PK\5\6" + little(0, 4) + little(files.size(), 2) + little(files.size(), 2) +
         little(end.zip64 ? 0xffffffff : length, 4) + little(end.zip64 ? 0xffffffff : start, 4) +
         little(end.comment.size(), 2) + end.comment;
}

}  // namespace test
