// The difference between two versions of some elements of one tensor, without loss: differences of ordered bits. If few
// elements have changed, it has those alone (a sparse update). Otherwise it has planes of one byte of each element, of
// which each is left out, kept, or packed.
//
// A step of training changes the low bits of most elements and the high bits of few. So the planes of the high bytes
// are zero or nearly so, and those of the low bytes are noise, which no coder makes shorter: they cost no time.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/dtype.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/satellites/differences/detail/ordered_bits.hpp>
#include <tensorpull/satellites/differences/detail/sparse_elements.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tensorpull {

/// Makes a plane of bytes shorter. `id` is its number on the wire: 0 is none, 1 is DEFLATE, from 128 on they are yours.
/// `pack` writes `in` to `out` and returns the length, 0: it does not fit. `unpack` fills all of `out` from all of
/// `in`, which anybody may have written; false: it is not such a plane.
template <class C>
concept difference_coder = requires(C& c, std::span<const std::byte> in, std::span<std::byte> out) {
  requires std::same_as<decltype(C::id), const std::uint32_t>;
  { c.pack(in, out) } noexcept -> std::same_as<std::size_t>;
  { c.unpack(in, out) } noexcept -> std::same_as<bool>;
};

/// Packs nothing: planes are left out or kept. It needs no memory and no library, so devices have it.
struct no_coder {
  static constexpr std::uint32_t id = 0;
  static std::size_t pack(std::span<const std::byte>, std::span<std::byte>) noexcept { return 0; }
  static bool unpack(std::span<const std::byte>, std::span<std::byte>) noexcept { return false; }
};
static_assert(difference_coder<no_coder>);

/// Bytes of elements that are coded together. Each block is of one tensor, so its last one may be shorter.
inline constexpr std::size_t difference_block_bytes = 64 * 1024;

/// The longest coded block of `bytes` bytes.
constexpr std::size_t coded_block_bound(std::size_t bytes) noexcept { return bytes + 12; }

namespace detail {

/// In front of each plane. A block in which something has changed has a check of the old elements before it, in 4
/// bytes: of all of them, or in the sparse form of those that have changed.
enum class plane_kind : std::uint8_t {
  zero,
  kept,
  packed,
  sparse  ///< no plane: all of the block is of encode_sparse
};

/// Elements that are processed at a time, in steps that compilers vectorise one by one.
inline constexpr std::size_t difference_step = 64;

template <class E>
void split_planes(const std::byte* from, const std::byte* to, std::size_t n, std::byte* planes) noexcept {
  using U = typename E::word;
  U z[difference_step];
  for (std::size_t i = 0; i < n; i += difference_step) {
    const std::size_t m = std::min(difference_step, n - i);
    for (std::size_t j = 0; j < m; ++j) {
      const std::size_t at = (i + j) * sizeof(U);
      z[j] = E::difference(load_element<U>(from + at), load_element<U>(to + at));
    }
    for (std::size_t k = 0; k < sizeof(U); ++k)
      for (std::size_t j = 0; j < m; ++j) planes[k * n + i + j] = static_cast<std::byte>(z[j] >> (8 * k) & 0xff);
  }
}
template <class E>
void join_planes(std::byte* at, std::size_t n, const std::byte* planes) noexcept {
  using U = typename E::word;
  U z[difference_step];
  for (std::size_t i = 0; i < n; i += difference_step) {
    const std::size_t m = std::min(difference_step, n - i);
    for (std::size_t j = 0; j < m; ++j) z[j] = static_cast<U>(planes[i + j]);
    for (std::size_t k = 1; k < sizeof(U); ++k)
      for (std::size_t j = 0; j < m; ++j)
        z[j] = static_cast<U>(z[j] | static_cast<U>(static_cast<U>(planes[k * n + i + j]) << (8 * k)));
    for (std::size_t j = 0; j < m; ++j) {
      std::byte* const element = at + (i + j) * sizeof(U);
      store_element(element, E::moved(load_element<U>(element), z[j]));
    }
  }
}

/// Notices by accident, not on purpose, that elements are others.
inline std::uint32_t element_check(std::span<const std::byte> elements) noexcept {
  xxh3_64 hash;
  hash.update(elements);
  return static_cast<std::uint32_t>(hash.digest());
}
inline bool all_zero(std::span<const std::byte> plane) noexcept {
  auto all = std::byte{};
  for (const std::byte b : plane) all |= b;
  return all == std::byte{};
}
/// Whether a plane is noise, by a sample of its bytes: no value is much more frequent than the others. Two drawn bytes
/// are equal once in 256 times if all values are equally frequent.
inline bool is_noise(std::span<const std::byte> plane) noexcept {
  constexpr std::size_t samples = 1024;
  if (plane.size() < 2 * samples) return false;
  std::uint16_t counts[256]{};
  const std::size_t step = plane.size() / samples;
  for (std::size_t i = 0; i < samples; ++i) {
    // one of each `step` bytes, and another one each time: in a row of the tensor some columns may change and no others
    const auto turn = static_cast<std::uint32_t>(i) * 0x9E3779B9U >> 16U;
    ++counts[static_cast<unsigned char>(plane[i * step + turn % step])];
  }
  std::uint64_t pairs = 0;
  for (const std::uint64_t c : counts) pairs += c * (c - (c != 0));
  return pairs * 256 < samples * (samples - 1) * 13 / 10;  // 1.3 times as many as of noise: less than 5 % are saved
}

}  // namespace detail

/// Writes the difference from `from` to `to` to `out`, and returns its bytes: at most coded_block_bound(). Requires
/// whole elements of one tensor of this dtype in an image's order, of equal length, and a `scratch` as long.
template <difference_coder Coder>
std::size_t encode_block(Coder& coder, dtype type, std::span<const std::byte> from, std::span<const std::byte> to,
                         std::span<std::byte> out, std::span<std::byte> scratch) noexcept {
  const std::size_t width = detail::difference_element_of(type).width, n = to.size() / width;
  // what has not changed goes by at the speed of memory
  if (to.empty() || std::memcmp(from.data(), to.data(), to.size()) == 0) {
    const std::size_t planes = n > 0 ? width : 0;
    std::fill_n(out.begin(), planes, static_cast<std::byte>(detail::plane_kind::zero));
    return planes;
  }
  std::size_t sparse = 0;
  detail::with_difference_element(type, [&]<class E>(E) {
    std::span<const std::byte> changed;
    sparse = detail::encode_sparse<E>(from.data(), to.data(), n, out.subspan(5), scratch.data(), changed);
    if (sparse == 0) detail::split_planes<E>(from.data(), to.data(), n, scratch.data());
    else detail::store_element(out.data(), detail::element_check(changed));
  });
  if (sparse != 0) {
    out[4] = static_cast<std::byte>(detail::plane_kind::sparse);
    return 5 + sparse;
  }
  detail::store_element(out.data(), detail::element_check(from));
  std::size_t at = 4;
  for (std::size_t k = 0; k < width && n > 0; ++k) {
    const std::span<const std::byte> plane = scratch.subspan(k * n, n);
    if (detail::all_zero(plane)) {
      out[at++] = static_cast<std::byte>(detail::plane_kind::zero);
      continue;
    }
    // packed it has its length in front, and is shorter with it
    std::size_t packed = 0;
    if (n > 16 && !detail::is_noise(plane)) packed = coder.pack(plane, out.subspan(at + 5, n - 8));
    if (packed != 0) {
      out[at] = static_cast<std::byte>(detail::plane_kind::packed);
      detail::store_element(&out[at + 1], static_cast<std::uint32_t>(packed));
      at += 5 + packed;
    } else {
      out[at] = static_cast<std::byte>(detail::plane_kind::kept);
      std::memcpy(&out[at + 1], plane.data(), n);
      at += 1 + n;
    }
  }
  return at;
}

/// Turns the old elements in `inout` into the new ones. `coded` is a block of encode_block, or anything; `scratch` is
/// as long as `inout`. After an error `inout` is as it was. bad_frame: it is not a coded block of this length;
/// digest_mismatch: it is one of other elements.
template <difference_coder Coder>
result<void> apply_block(Coder& coder, dtype type, std::span<std::byte> inout, std::span<const std::byte> coded,
                         std::span<std::byte> scratch) noexcept {
  const std::size_t width = detail::difference_element_of(type).width, n = inout.size() / width;
  const std::size_t planes = n > 0 ? width : 0;
  if (coded.size() == planes && detail::all_zero(coded)) return {};
  if (n == 0 || coded.size() < 4) return failure(errc::bad_frame);
  const auto check = static_cast<std::uint32_t>(load_le32(coded.data()));
  coded = coded.subspan(4);
  if (!coded.empty() && coded[0] == static_cast<std::byte>(detail::plane_kind::sparse)) {
    errc failed{};
    detail::with_difference_element(type, [&]<class E>(E) {
      const auto same = [&](std::span<const std::byte> old) noexcept { return detail::element_check(old) == check; };
      failed = detail::apply_sparse<E>(inout.data(), n, coded.subspan(1), scratch.data(), same);
    });
    return failed == errc{} ? result<void>{} : failure(failed);
  }
  for (std::size_t k = 0; k < width; ++k) {
    const std::span<std::byte> plane = scratch.subspan(k * n, n);
    if (coded.empty()) return failure(errc::bad_frame);
    const auto kind = static_cast<detail::plane_kind>(coded[0]);
    coded = coded.subspan(1);
    std::size_t length = 0;
    switch (kind) {
      case detail::plane_kind::zero: std::memset(plane.data(), 0, n); break;
      case detail::plane_kind::kept:
        length = n;
        if (coded.size() < n) return failure(errc::bad_frame);
        std::memcpy(plane.data(), coded.data(), n);
        break;
      case detail::plane_kind::packed:
        if (coded.size() < 4) return failure(errc::bad_frame);
        length = static_cast<std::size_t>(load_le32(coded.data()));
        coded = coded.subspan(4);
        if (length > coded.size() || !coder.unpack(coded.first(length), plane)) return failure(errc::bad_frame);
        break;
      default: return failure(errc::bad_frame);
    }
    coded = coded.subspan(length);
  }
  if (!coded.empty()) return failure(errc::bad_frame);
  if (detail::element_check(inout) != check) return failure(errc::digest_mismatch);
  detail::with_difference_element(type, [&]<class E>(E) { detail::join_planes<E>(inout.data(), n, scratch.data()); });
  return {};
}

}  // namespace tensorpull
