// The files of a zip archive, as Python's zipfile sees them, since that opens npz files for NumPy.
//
// Written here because minizip, the one packaged library that tells where a stored file lies, differs from zipfile
// (names, archives behind other bytes, ZIP64 fields). An archive could mean one thing there and another here.
//
// A name's bytes are UTF-8 if its flag is set, otherwise code page 437.
#pragma once

#include <tensorpull/core/checked.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/image/utf8.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensorpull::detail {

/// The characters of the octets 0x80 to 0xff in code page 437, the first encoding of zip archives.
inline constexpr char16_t code_page_437[128] = {
    0x00c7, 0x00fc, 0x00e9, 0x00e2, 0x00e4, 0x00e0, 0x00e5, 0x00e7, 0x00ea, 0x00eb, 0x00e8, 0x00ef, 0x00ee,
    0x00ec, 0x00c4, 0x00c5, 0x00c9, 0x00e6, 0x00c6, 0x00f4, 0x00f6, 0x00f2, 0x00fb, 0x00f9, 0x00ff, 0x00d6,
    0x00dc, 0x00a2, 0x00a3, 0x00a5, 0x20a7, 0x0192, 0x00e1, 0x00ed, 0x00f3, 0x00fa, 0x00f1, 0x00d1, 0x00aa,
    0x00ba, 0x00bf, 0x2310, 0x00ac, 0x00bd, 0x00bc, 0x00a1, 0x00ab, 0x00bb, 0x2591, 0x2592, 0x2593, 0x2502,
    0x2524, 0x2561, 0x2562, 0x2556, 0x2555, 0x2563, 0x2551, 0x2557, 0x255d, 0x255c, 0x255b, 0x2510, 0x2514,
    0x2534, 0x252c, 0x251c, 0x2500, 0x253c, 0x255e, 0x255f, 0x255a, 0x2554, 0x2569, 0x2566, 0x2560, 0x2550,
    0x256c, 0x2567, 0x2568, 0x2564, 0x2565, 0x2559, 0x2558, 0x2552, 0x2553, 0x256b, 0x256a, 0x2518, 0x250c,
    0x2588, 0x2584, 0x258c, 0x2590, 0x2580, 0x03b1, 0x00df, 0x0393, 0x03c0, 0x03a3, 0x03c3, 0x00b5, 0x03c4,
    0x03a6, 0x0398, 0x03a9, 0x03b4, 0x221e, 0x03c6, 0x03b5, 0x2229, 0x2261, 0x00b1, 0x2265, 0x2264, 0x2320,
    0x2321, 0x00f7, 0x2248, 0x00b0, 0x2219, 0x00b7, 0x221a, 0x207f, 0x00b2, 0x25a0, 0x00a0,
};

/// Nothing: the name is not UTF-8 although its flag is set. Throws std::bad_alloc.
inline std::optional<std::string> zip_name(std::string_view raw, bool flag_utf8) {
  if (flag_utf8) return is_utf8(raw) ? std::optional<std::string>(raw) : std::nullopt;
  std::string name;
  for (const char c : raw) {
    const auto octet = static_cast<unsigned char>(c);
    const unsigned code = octet < 0x80 ? octet : code_page_437[octet - 0x80];
    if (code >= 0x800) name += static_cast<char>(0xe0 | code >> 12);
    if (code >= 0x80) name += static_cast<char>(code >= 0x800 ? 0x80 | (code >> 6 & 0x3f) : 0xc0 | code >> 6);
    name += static_cast<char>(code >= 0x80 ? 0x80 | (code & 0x3f) : code);
  }
  return name;
}

/// A file in an archive: bytes [offset, offset + packed) of the archive, as it is or deflated.
struct zip_member {
  /// UTF-8, as the archive has it: a name, never a path
  std::string name;
  std::uint64_t offset = 0, packed = 0, size = 0;
  bool deflated = false;
  std::uint32_t crc32 = 0;
};

/// Reads one archive; `File` has size() and read_at(offset, span), as positioned_file has.
template <class File>
class zip_directory {
 public:
  explicit zip_directory(const File& file) noexcept : file_(file) {}

  /// All files, in the directory's order. Memory grows with the entries that were read, never with a claimed number.
  /// Errors: bad_file; unsupported_layout, with its name, for a file that is encrypted or packed otherwise;
  /// too_many_tensors; those of `file`. Throws std::bad_alloc.
  result<std::vector<zip_member>> read(std::size_t most_members) {
    if (const auto done = find(); !done) return failure(done.error());
    std::vector<zip_member> members;
    std::vector<std::array<std::uint64_t, 2>> places;  // of the header; index of the member
    for (std::uint64_t at = start_; at != end_;) {
      if (members.size() == most_members) return failure(errc::too_many_tensors, at);
      auto found = read_entry(at);
      if (!found) return failure(found.error());
      if (const auto done = find_data(*found); !done) return failure(done.error());
      places.push_back({found->header, members.size()});
      members.push_back(std::move(found->member));
      at = found->end;
    }
    std::sort(places.begin(), places.end());
    for (std::size_t i = 0; i < places.size(); ++i) {
      const zip_member& member = members[static_cast<std::size_t>(places[i][1])];
      const std::uint64_t next = i + 1 < places.size() ? places[i + 1][0] : start_;
      if (member.offset > next || member.packed > next - member.offset)
        return refuse(errc::bad_file, member.offset, member);
    }
    return members;
  }

 private:
  static constexpr std::size_t end_bytes = 22, end64_bytes = 56, locator64_bytes = 20, entry_bytes = 46,
                               header_bytes = 30;
  static constexpr std::uint32_t end_mark = 0x06054b50, end64_mark = 0x06064b50, locator64_mark = 0x07064b50;
  static constexpr std::uint32_t entry_mark = 0x02014b50, header_mark = 0x04034b50;
  static constexpr std::uint64_t all_ones_32 = 0xffff'ffff;

  struct found_entry {
    zip_member member;
    std::string whole_name;  // also behind a NUL, although zipfile ends a name there
    std::uint64_t header = 0, end = 0;
    unsigned flags = 0, method = 0;
  };

  static unexpected refuse(errc code, std::uint64_t at, const zip_member& member) noexcept {
    return failure(code, at, std::string_view(member.name));
  }

  static std::uint64_t number(std::span<const std::byte> bytes, std::size_t at, std::size_t n) noexcept {
    std::uint64_t value = 0;
    for (std::size_t i = n; i-- > 0;) value = value << 8 | static_cast<std::uint64_t>(bytes[at + i]);
    return value;
  }

  /// The end of the directory: the last record with its mark, before a comment of at most 64 KiB.
  result<void> find() {
    const std::uint64_t size = file_.size();
    if (size < end_bytes) return failure(errc::bad_file, size);
    std::vector<std::byte> tail(end_bytes);
    if (const auto done = file_.read_at(size - end_bytes, tail); !done) return done;
    std::uint64_t end = size - end_bytes;
    if (number(tail, 0, 4) != end_mark || number(tail, 20, 2) != 0) {
      tail.resize(static_cast<std::size_t>(std::min<std::uint64_t>(size, end_bytes + 65'536)));
      if (const auto done = file_.read_at(size - tail.size(), tail); !done) return done;
      std::size_t at = tail.size() - 4;
      while (at > 0 && number(tail, at, 4) != end_mark) --at;
      if (number(tail, at, 4) != end_mark || tail.size() - at < end_bytes) return failure(errc::bad_file, size);
      end = size - tail.size() + at;
      tail.erase(tail.begin(), tail.begin() + static_cast<std::ptrdiff_t>(at));
    }
    std::uint64_t length = number(tail, 12, 4);
    claimed_start_ = number(tail, 16, 4);
    end_ = end;
    if (const auto done = find_64(end, length); !done) return done;
    if (length > end_) return failure(errc::bad_file, end);
    start_ = end_ - length;
    return {};
  }

  /// The ZIP64 record and its locator, if any, are before the end record.
  result<void> find_64(std::uint64_t end, std::uint64_t& length) noexcept {
    if (end < locator64_bytes) return {};
    std::array<std::byte, end64_bytes> room;
    const std::span locator(room.data(), locator64_bytes);
    if (const auto done = file_.read_at(end - locator64_bytes, locator); !done) return done;
    if (number(locator, 0, 4) != locator64_mark) return {};
    if (number(locator, 4, 4) != 0 || number(locator, 16, 4) > 1) return failure(errc::bad_file, end);  // several disks
    if (end < locator64_bytes + end64_bytes) return failure(errc::bad_file, end);
    if (const auto done = file_.read_at(end - locator64_bytes - end64_bytes, room); !done) return done;
    if (number(room, 0, 4) != end64_mark) return {};
    length = number(room, 40, 8);
    claimed_start_ = number(room, 48, 8);
    end_ = end - locator64_bytes - end64_bytes;
    return {};
  }

  result<found_entry> read_entry(std::uint64_t at) {
    std::array<std::byte, entry_bytes> fixed;
    if (end_ - at < entry_bytes) return failure(errc::bad_file, at);
    if (const auto done = file_.read_at(at, fixed); !done) return failure(done.error());
    const std::size_t name_bytes = number(fixed, 28, 2), extra_bytes = number(fixed, 30, 2),
                      comment_bytes = number(fixed, 32, 2);
    if (number(fixed, 0, 4) != entry_mark || end_ - at - entry_bytes < name_bytes + extra_bytes + comment_bytes)
      return failure(errc::bad_file, at);
    std::string variable(name_bytes + extra_bytes, '\0');
    if (const auto done = file_.read_at(at + entry_bytes, std::as_writable_bytes(std::span(variable))); !done)
      return failure(done.error());

    found_entry made;
    made.end = at + entry_bytes + name_bytes + extra_bytes + comment_bytes;
    made.flags = static_cast<unsigned>(number(fixed, 8, 2));
    made.method = static_cast<unsigned>(number(fixed, 10, 2));
    auto name = zip_name(std::string_view(variable).substr(0, name_bytes), (made.flags & 0x800) != 0);
    if (!name) return failure(errc::bad_file, at);
    made.whole_name = std::move(*name);
    made.member.name = made.whole_name.substr(0, made.whole_name.find('\0'));
    made.member.crc32 = static_cast<std::uint32_t>(number(fixed, 16, 4));
    made.member.packed = number(fixed, 20, 4);
    std::uint64_t header = number(fixed, 42, 4);
    made.member.size = number(fixed, 24, 4);
    if (!read_zip64(std::as_bytes(std::span(variable)).subspan(name_bytes), made.member.size, made.member.packed,
                    header))
      return refuse(errc::bad_file, at, made.member);
    // zipfile's most recent version of the format, compression, encryption, patches
    if (number(fixed, 6, 1) > 63 || (made.method != 0 && made.method != 8) || (made.flags & 0x61) != 0)
      return refuse(errc::unsupported_layout, at, made.member);
    made.member.deflated = made.method == 8;
    if (!made.member.deflated && made.member.packed != made.member.size) return refuse(errc::bad_file, at, made.member);
    // Offsets count from where the archive began when it was made, which may now be behind other bytes.
    const auto moved = checked_add(header, start_);
    if (!moved || *moved < claimed_start_) return refuse(errc::bad_file, at, made.member);
    made.header = *moved - claimed_start_;
    return made;
  }

  /// Sizes and offset above 32 bits. False: the fields do not fit their room.
  static bool read_zip64(std::span<const std::byte> extra, std::uint64_t& size, std::uint64_t& packed,
                         std::uint64_t& header) noexcept {
    while (extra.size() >= 4) {
      const std::uint64_t kind = number(extra, 0, 2), length = number(extra, 2, 2);
      if (length > extra.size() - 4) return false;
      auto data = extra.subspan(4, static_cast<std::size_t>(length));
      const auto take = [&](std::uint64_t& value, bool wanted) {
        if (!wanted) return true;
        if (data.size() < 8) return false;
        value = number(data, 0, 8);
        data = data.subspan(8);
        return true;
      };
      if (kind == 1 && !(take(size, size == all_ones_32 || size == ~std::uint64_t{0}) &&
                         take(packed, packed == all_ones_32) && take(header, header == all_ones_32)))
        return false;
      extra = extra.subspan(4 + static_cast<std::size_t>(length));
    }
    return true;
  }

  /// A file's data follows a header of its own, which must have the same name.
  result<void> find_data(found_entry& e) {
    std::array<std::byte, header_bytes> fixed;
    if (!range_within(e.header, header_bytes, file_.size())) return refuse(errc::bad_file, e.header, e.member);
    if (const auto done = file_.read_at(e.header, fixed); !done) return done;
    const std::size_t name_bytes = number(fixed, 26, 2), extra_bytes = number(fixed, 28, 2);
    if (number(fixed, 0, 4) != header_mark ||
        !range_within(e.header + header_bytes, name_bytes + extra_bytes, file_.size()))
      return refuse(errc::bad_file, e.header, e.member);
    std::string raw(name_bytes, '\0');
    if (const auto done = file_.read_at(e.header + header_bytes, std::as_writable_bytes(std::span(raw))); !done)
      return done;
    const auto name = zip_name(raw, (number(fixed, 6, 2) & 0x800) != 0);
    if (!name || *name != e.whole_name) return refuse(errc::bad_file, e.header, e.member);
    e.member.offset = e.header + header_bytes + name_bytes + extra_bytes;
    return {};
  }

  const File& file_;
  std::uint64_t start_ = 0, end_ = 0;  // of the directory
  std::uint64_t claimed_start_ = 0;  // where it claims to start
};

}  // namespace tensorpull::detail
