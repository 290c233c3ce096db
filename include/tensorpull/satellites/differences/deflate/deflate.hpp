// DEFLATE (RFC 1951) by zlib, for the planes of a difference. Opt-in: it wants zlib.
#pragma once

#include <tensorpull/satellites/differences/block.hpp>

#include <zlib.h>

#include <limits>

namespace tensorpull {

/// Packs by Huffman codes and runs of one byte, which suit planes of differences; matches at a distance would take
/// several times as long and save next to nothing. Memory: about 270 KiB for packing and 40 KiB for unpacking, each
/// taken by the first plane and kept. Without memory, a plane is kept as it is when packing, and refused when
/// unpacking.
class deflate_coder {
 public:
  static constexpr std::uint32_t id = 1;

  deflate_coder() noexcept = default;
  deflate_coder(const deflate_coder&) = delete;
  deflate_coder& operator=(const deflate_coder&) = delete;
  ~deflate_coder() {
    if (packs_) (void)::deflateEnd(&pack_);
    if (unpacks_) (void)::inflateEnd(&unpack_);
  }

  std::size_t pack(std::span<const std::byte> in, std::span<std::byte> out) noexcept {
    if (!packs_) packs_ = ::deflateInit2(&pack_, 1, Z_DEFLATED, raw, 8, Z_RLE) == Z_OK;
    if (!packs_ || !fits(in, out)) return 0;
    const bool ready = ::deflateReset(&pack_) == Z_OK;
    lead(pack_, in, out);
    return ready && ::deflate(&pack_, Z_FINISH) == Z_STREAM_END ? out.size() - pack_.avail_out : 0;
  }
  bool unpack(std::span<const std::byte> in, std::span<std::byte> out) noexcept {
    if (!unpacks_) unpacks_ = ::inflateInit2(&unpack_, raw) == Z_OK;
    if (!unpacks_ || !fits(in, out)) return false;
    const bool ready = ::inflateReset(&unpack_) == Z_OK;
    lead(unpack_, in, out);
    return ready && ::inflate(&unpack_, Z_FINISH) == Z_STREAM_END && unpack_.avail_in == 0 && unpack_.avail_out == 0;
  }

 private:
  static constexpr int raw = -MAX_WBITS;  // below 0: no header of zlib's

  static bool fits(std::span<const std::byte> in, std::span<std::byte> out) noexcept {
    constexpr std::size_t most = std::numeric_limits<uInt>::max();
    return in.size() <= most && out.size() <= most;
  }
  static void lead(z_stream& s, std::span<const std::byte> in, std::span<std::byte> out) noexcept {
    s.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(in.data()));  // old zlib is not const-correct
    s.avail_in = static_cast<uInt>(in.size());
    s.next_out = reinterpret_cast<Bytef*>(out.data());
    s.avail_out = static_cast<uInt>(out.size());
  }

  z_stream pack_{}, unpack_{};
  bool packs_ = false, unpacks_ = false;
};
static_assert(difference_coder<deflate_coder>);

}  // namespace tensorpull
