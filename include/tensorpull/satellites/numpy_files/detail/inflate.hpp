// Unpacks DEFLATE (RFC 1951), the format of numpy.savez_compressed, with zlib.
#pragma once

#include <tensorpull/core/result.hpp>

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <vector>

namespace tensorpull::detail {

/// Reads one stream from bytes [at, end) of a `File`, which has read_at(offset, span), through 16 KiB.
template <class File>
class inflater {
 public:
  inflater(const File& file, std::uint64_t at, std::uint64_t end) noexcept : file_(file), next_(at), end_(end) {}
  inflater(inflater&&) = delete;
  ~inflater() { (void)inflateEnd(&zlib_); }

  /// The whole stream. Memory grows with the unpacked bytes, never above twice `size`. Errors: bad_file: it is not such
  /// a stream, does not have `size` bytes, or ends before its last byte; those of `file`. Throws std::bad_alloc.
  result<std::vector<std::byte>> unpack(std::uint64_t size) {
    if (inflateInit2(&zlib_, -MAX_WBITS) != Z_OK) throw std::bad_alloc();  // below 0: no header of zlib's
    std::vector<std::byte> out;
    std::uint64_t unpacked = 0;
    for (int how = Z_OK; how != Z_STREAM_END;) {
      if (zlib_.avail_in == 0)
        if (const auto ok = read(); !ok) return failure(ok.error());
      // a byte of room beyond the end, so that a stream that holds more shows it
      out.resize(static_cast<std::size_t>(std::min(size, std::max<std::uint64_t>(2 * unpacked, packed_.size()))) + 1);
      zlib_.next_out = reinterpret_cast<Bytef*>(out.data() + unpacked);
      const auto room = static_cast<uInt>(std::min<std::uint64_t>(out.size() - unpacked, most_at_once));
      zlib_.avail_out = room;
      how = ::inflate(&zlib_, Z_NO_FLUSH);
      if (how == Z_MEM_ERROR) throw std::bad_alloc();
      if (how != Z_OK && how != Z_STREAM_END) return failure(errc::bad_file);
      unpacked += room - zlib_.avail_out;
      if (unpacked > size) return failure(errc::bad_file);
    }
    if (unpacked != size || zlib_.avail_in != 0 || next_ != end_) return failure(errc::bad_file);
    out.resize(static_cast<std::size_t>(size));
    return out;
  }

 private:
  static constexpr std::uint64_t most_at_once = 1u << 30;

  result<void> read() noexcept {
    const std::span<std::byte> here = std::span(packed_).first(
        static_cast<std::size_t>(std::min<std::uint64_t>(packed_.size(), end_ - next_)));
    if (const auto ok = file_.read_at(next_, here); !ok) return ok;
    next_ += here.size();
    zlib_.next_in = reinterpret_cast<Bytef*>(here.data());
    zlib_.avail_in = static_cast<uInt>(here.size());
    return {};
  }

  const File& file_;
  std::uint64_t next_, end_;
  std::array<std::byte, 16 * 1024> packed_;
  z_stream zlib_{};
};

}  // namespace tensorpull::detail
