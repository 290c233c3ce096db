// The difference between two versions of some elements of one tensor, without loss: differences of ordered bits, in
// planes of one byte of each element, of which each is left out, kept, or packed.
//
// A step of training changes the low bits of most elements and the high bits of few. So the planes of the high bytes
// are zero or nearly so, and those of the low bytes are noise, which no coder makes shorter: they cost no time.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/dtype.hpp>
#include <tensorpull/core/result.hpp>
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
constexpr std::size_t coded_block_bound(std::size_t bytes) noexcept { return bytes + 8; }

namespace detail {

/// How an element's bytes are subtracted: as unsigned numbers of `width` bytes. `floating`: numbers with a sign bit are
/// ordered by value before, so that close numbers differ by little.
struct difference_element {
  std::size_t width;
  bool floating;
};
constexpr difference_element difference_element_of(dtype type) noexcept {
  switch (type) {
    case dtype::f16:
    case dtype::bf16: return {2, true};
    case dtype::f32:
    case dtype::c64: return {4, true};
    case dtype::f64: return {8, true};
    case dtype::i16:
    case dtype::u16: return {2, false};
    case dtype::i32:
    case dtype::u32: return {4, false};
    case dtype::i64:
    case dtype::u64: return {8, false};
    default: return {1, false};
  }
}

enum class plane_kind : std::uint8_t {
  zero,
  kept,
  packed
};

template <std::unsigned_integral U>
U load_element(const std::byte* at) noexcept {
  if constexpr (sizeof(U) == 1) return static_cast<U>(*at);
  else if constexpr (sizeof(U) == 2) return static_cast<U>(load_le16(at));
  else if constexpr (sizeof(U) == 4) return static_cast<U>(load_le32(at));
  else return load_le64(at);
}
template <std::unsigned_integral U>
void store_element(std::byte* at, U v) noexcept {
  for (std::size_t k = 0; k < sizeof(U); ++k) at[k] = static_cast<std::byte>(v >> (8 * k) & 0xff);
}

/// Bits of a floating number as a number in the same order, and back.
template <std::unsigned_integral U>
constexpr U in_order(U bits) noexcept {
  constexpr U top = static_cast<U>(U{1} << (8 * sizeof(U) - 1));
  const U negative = static_cast<U>(U{0} - (bits >> (8 * sizeof(U) - 1)));
  return static_cast<U>(bits ^ (negative | top));
}
template <std::unsigned_integral U>
constexpr U out_of_order(U v) noexcept {
  constexpr U top = static_cast<U>(U{1} << (8 * sizeof(U) - 1));
  const U negative = static_cast<U>((v >> (8 * sizeof(U) - 1)) - U{1});
  return static_cast<U>(v ^ (negative | top));
}
/// Small differences of both signs as small numbers, and back.
template <std::unsigned_integral U>
constexpr U zigzag(U d) noexcept {
  return static_cast<U>(static_cast<U>(d << 1) ^ static_cast<U>(U{0} - (d >> (8 * sizeof(U) - 1))));
}
template <std::unsigned_integral U>
constexpr U from_zigzag(U z) noexcept {
  return static_cast<U>((z >> 1) ^ static_cast<U>(U{0} - (z & U{1})));
}

/// The elements with the bits `word`.
template <std::unsigned_integral U, bool Floating>
struct bits_of {
  using word = U;
  static constexpr bool floating = Floating;
};
using element_u16 = bits_of<std::uint16_t, false>;
using element_f16 = bits_of<std::uint16_t, true>;
using element_u32 = bits_of<std::uint32_t, false>;
using element_f32 = bits_of<std::uint32_t, true>;
using element_u64 = bits_of<std::uint64_t, false>;
using element_f64 = bits_of<std::uint64_t, true>;
using element_u8 = bits_of<std::uint8_t, false>;

/// Elements that are processed at a time, in steps that compilers vectorise one by one.
inline constexpr std::size_t difference_step = 64;

template <class E>
void split_planes(const std::byte* from, const std::byte* to, std::size_t n, std::byte* planes) noexcept {
  using U = typename E::word;
  U z[difference_step];
  for (std::size_t i = 0; i < n; i += difference_step) {
    const std::size_t m = std::min(difference_step, n - i);
    for (std::size_t j = 0; j < m; ++j) {
      U a = load_element<U>(from + (i + j) * sizeof(U)), b = load_element<U>(to + (i + j) * sizeof(U));
      if constexpr (E::floating) a = in_order(a), b = in_order(b);
      z[j] = zigzag(static_cast<U>(b - a));
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
      U v = load_element<U>(element);
      if constexpr (E::floating) v = out_of_order(static_cast<U>(in_order(v) + from_zigzag(z[j])));
      else v = static_cast<U>(v + from_zigzag(z[j]));
      store_element(element, v);
    }
  }
}

/// Calls f with the element type of a dtype.
template <class F>
void with_difference_element(dtype type, F&& f) noexcept {
  const difference_element e = difference_element_of(type);
  switch (e.width) {
    case 2: return e.floating ? f(element_f16{}) : f(element_u16{});
    case 4: return e.floating ? f(element_f32{}) : f(element_u32{});
    case 8: return e.floating ? f(element_f64{}) : f(element_u64{});
    default: return f(element_u8{});
  }
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
  detail::with_difference_element(
      type, [&]<class E>(E) { detail::split_planes<E>(from.data(), to.data(), n, scratch.data()); });
  std::size_t at = 0;
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
/// as long as `inout`. bad_frame: it is not a coded block of this length, and `inout` is as it was.
template <difference_coder Coder>
result<void> apply_block(Coder& coder, dtype type, std::span<std::byte> inout, std::span<const std::byte> coded,
                         std::span<std::byte> scratch) noexcept {
  const std::size_t width = detail::difference_element_of(type).width, n = inout.size() / width;
  const std::size_t planes = n > 0 ? width : 0;
  if (coded.size() == planes && detail::all_zero(coded)) return {};
  for (std::size_t k = 0; k < width && n > 0; ++k) {
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
  detail::with_difference_element(type, [&]<class E>(E) { detail::join_planes<E>(inout.data(), n, scratch.data()); });
  return {};
}

}  // namespace tensorpull
