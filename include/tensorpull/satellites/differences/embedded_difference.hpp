// The difference of a small machine's model to its base, in 8 bits: a quarter of the bytes of the whole. It is computed
// as it is read, so neither a second model nor the difference is in memory; the base stays where it has landed, in
// flash or in memory. The bytes are those of narrowed_difference (satellites/differences/narrowed_difference.hpp);
// recipients apply them with `widened` or `move_by`.
#pragma once

#include <tensorpull/core/digits.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/satellites/differences/detail/narrowed_image.hpp>

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>

namespace tensorpull {

namespace detail::embedded {

/// XXH3-64 of an input whose length is known beforehand.
template <bool MayBeShort>
class hash_of_known {
 public:
  void begin(std::size_t bytes) noexcept {
    if (MayBeShort && bytes < lean_xxh3_64::least_bytes) used_ = 0;
    else used_ = is_long, ::new (static_cast<void*>(&memory_.long_)) lean_xxh3_64();
  }
  void update(std::span<const std::byte> bytes) noexcept {
    if (MayBeShort && used_ != is_long) {
      if (!bytes.empty()) std::memcpy(memory_.held_ + used_, bytes.data(), bytes.size());
      used_ += static_cast<std::uint32_t>(bytes.size());
      return;
    }
    memory_.long_.update(bytes);
  }
  std::uint64_t digest() const noexcept {
    if (MayBeShort && used_ != is_long) return xxh3::hash_short(memory_.held_, used_);
    return memory_.long_.digest();
  }

 private:
  static constexpr std::uint32_t is_long = 0xffffffff;
  std::uint32_t used_ = is_long;
  union memory {
    memory() noexcept : long_() {}
    lean_xxh3_64 long_;
    unsigned char held_[lean_xxh3_64::least_bytes];
  } memory_;
};

}  // namespace detail::embedded

/// Holds a difference's base, such as a model_landing or a flash_landing: `b.read(at, out)` gives a range of its
/// data section.
template <class B>
concept difference_base = requires(B& b, std::uint32_t at, std::span<std::byte> out) {
  { b.read(at, out) } noexcept -> std::same_as<result<void>>;
};

/// A model less a base in 8 bits, for an embedded_owner<embedded_difference<...>, N>. `BlockElements` share a scale,
/// and the tensors that `Which` chooses are narrowed. Memory: 32 bytes, and up to 1 KiB of the stack in prepare(). Code
/// and constants: about 3 KiB, and software arithmetic of doubles on a Cortex-M3.
///
/// Model and base must not change from prepare() until the publication ends. If one does, recipients get a mix, and
/// none of them ends as completed.
template <class Model, difference_base Base, std::size_t BlockElements = 256, tensor_filter Which = matrices>
class embedded_difference : private detail::embedded::narrowed_image<Model, blocks_of_8_bits<BlockElements, Which>> {
  using scheme = blocks_of_8_bits<BlockElements, Which>;
  using constants = detail::embedded::narrowed_image<Model, scheme>;
  using whole = embedded_image<Model>;
  using hash = detail::embedded::hash_of_known<constants::has_short_input>;
  using kind = detail::embedded::narrowed_kind;

 public:
  /// Borrows both.
  embedded_difference(const Model& model, Base& base) noexcept : model_(model), base_(base) {}

  /// Reads model and base, whose digests are in the header. Call it before each publication: without it recipients
  /// refuse the difference (stale_version). Cost: 2 passes over the base, 3 over the model. Errors, with the index of
  /// the tensor in the order of the model's image: invalid_argument (a NaN, an infinity, a difference that is too
  /// large); those of the base.
  [[nodiscard]] result<void> prepare() noexcept {
    scale_at_ = no_scale;
    from_ = to_ = 0;
    hash h;
    for (std::size_t i = 0; i < constants::model_count; ++i) {
      errc why = hash_base(h, constants::tensors[i]);
      from_ += h.digest();
      if (why == errc{}) why = hash_moved(h, constants::tensors[i]);
      to_ += h.digest();
      if (why != errc{}) return failure(why, i);
    }
    return {};
  }

  /// Reads a range of the data section. False: the base could not be read, or prepare() would fail. Computes a scale
  /// for each block that the range touches, unless it is the last one computed.
  [[gnu::noinline]] bool read(std::uint32_t at, std::span<std::byte> out) const noexcept {
    std::uint32_t begin = 0;
    for (std::size_t i = 0; !out.empty() && i < constants::tensor_count; begin = constants::parts[i++].end) {
      const std::uint32_t end = constants::parts[i].end;
      if (at >= end) continue;
      const std::size_t n = out.size() < end - at ? out.size() : end - at;
      if (read_part(constants::parts[i], at - begin, out.first(n)) != errc{}) return false;
      at += static_cast<std::uint32_t>(n);
      out = out.subspan(n);
    }
    return true;
  }
  /// Reads a range of the header.
  void read_header(std::uint32_t at, std::span<std::byte> out) const noexcept {
    std::memcpy(out.data(), constants::header.data() + at, out.size());
    put_digest(constants::base_at - at, from_, out);
    put_digest(constants::moved_at - at, to_, out);
  }

 private:
  static constexpr std::uint32_t no_scale = 0xffffffff;
  /// Elements that are computed at a time.
  static constexpr std::uint32_t piece = BlockElements < 16 ? static_cast<std::uint32_t>(BlockElements) : 16;
  static constexpr std::uint32_t block_elements = static_cast<std::uint32_t>(BlockElements);

  static std::uint32_t least(std::uint32_t a, std::uint32_t b) noexcept { return a < b ? a : b; }
  template <class T>
  static std::uint32_t place(std::uint32_t begin, std::uint32_t element) noexcept {
    return begin + element * static_cast<std::uint32_t>(sizeof(T));
  }
  /// `at`: where the digest begins in `out`, modulo 2^32; it may begin before `out`.
  static void put_digest(std::uint32_t at, std::uint64_t value, std::span<std::byte> out) noexcept {
    for (std::uint32_t i = 0; i < 16; ++i)
      if (at + i < out.size()) out[at + i] = static_cast<std::byte>(detail::hex_digit(value >> (60 - 4 * i)));
  }

  /// Between the order of an image and that of the machine.
  template <class T>
  static void turn([[maybe_unused]] std::span<T> elements) noexcept {
    if constexpr (!little_endian_machine)
      for (std::byte* p = std::as_writable_bytes(elements).data(); T & one : elements) {
        (void)one;
        for (std::size_t k = 0; k < sizeof(T) / 2; ++k) {
          const std::byte held = p[k];
          p[k] = p[sizeof(T) - 1 - k];
          p[sizeof(T) - 1 - k] = held;
        }
        p += sizeof(T);
      }
  }
  errc read_base(std::uint32_t at, std::span<std::byte> out) const noexcept {
    const auto ok = base_.read(at, out);
    return ok ? errc{} : ok.error().code;
  }
  /// `at`: in the model's data section.
  template <class T>
  errc load(std::uint32_t at, std::span<T> model, std::span<T> base) const noexcept {
    whole::read(model_, at, std::as_writable_bytes(model));
    turn(model);
    const errc why = read_base(at, std::as_writable_bytes(base));
    turn(base);
    return why;
  }

  /// Extends a scale by more elements. A function of its own, so that its stack is free when the base is read.
  template <class T>
  [[gnu::noinline]] static errc grow(std::span<const T> model, std::span<const T> base, std::uint32_t& most) noexcept {
    const auto scale = scheme::template scale<T>(model, base);
    if (!scale) return scale.error().code;
    if (const auto number = std::bit_cast<std::uint32_t>(*scale); number > most) most = number;  // none is negative
    return {};
  }
  /// Of the block to which the element belongs. The largest scale of parts of a block is that of the block.
  template <class T>
  [[gnu::noinline]] errc find_scale(std::uint32_t begin, std::uint32_t elements, std::uint32_t element) const noexcept {
    std::uint32_t first = element - element % block_elements;
    const std::uint32_t end = first + least(elements - first, block_elements), key = place<T>(begin, first);
    if (scale_at_ == key) return {};
    scale_at_ = no_scale;
    std::uint32_t most = 0;
    for (std::uint32_t n = 0; first < end; first += n) {
      n = least(end - first, piece);
      T model[piece], base[piece];
      if (const errc why = load<T>(place<T>(begin, first), {model, n}, {base, n}); why != errc{}) return why;
      if (const errc why = grow<T>({model, n}, {base, n}, most); why != errc{}) return why;
    }
    scale_ = std::bit_cast<float>(most);
    scale_at_ = key;
    return {};
  }
  template <class T>
  struct narrowed_elements {
    std::uint32_t n;
    std::int8_t codes[piece];
    T base[piece];
  };
  /// Narrows elements from `first` on, at most `n` of them.
  template <class T>
  [[gnu::noinline]] errc narrow(std::uint32_t begin, std::uint32_t elements, std::uint32_t first, std::uint32_t n,
                                narrowed_elements<T>& out) const noexcept {
    if (const errc why = find_scale<T>(begin, elements, first); why != errc{}) return why;
    // not across the end of a block, whose scale is another
    n = least(least(n, piece), block_elements - first % block_elements);
    out.n = n;
    T model[piece];
    const errc why = load<T>(place<T>(begin, first), {model, n}, {out.base, n});
    if (why == errc{}) scheme::template narrow<T>({model, n}, {out.base, n}, scale_, {out.codes, n});
    return why;
  }

  static void begin_with_name(hash& h, const detail::embedded::narrowed_tensor& t) noexcept {
    h.begin(t.bytes + t.name_length);
    h.update(std::as_bytes(std::span(constants::text).subspan(t.name_begin, t.name_length)));
  }
  [[gnu::noinline]] errc hash_base(hash& h, const detail::embedded::narrowed_tensor& t) const noexcept {
    begin_with_name(h, t);
    std::byte some[64];
    for (std::uint32_t done = 0, n = 0; done < t.bytes; done += n) {
      n = least(t.bytes - done, sizeof some);
      if (const errc why = read_base(t.begin + done, {some, n}); why != errc{}) return why;
      h.update({some, n});
    }
    return {};
  }
  /// Of what the receiver will have.
  [[gnu::noinline]] errc hash_moved(hash& h, const detail::embedded::narrowed_tensor& t) const noexcept {
    begin_with_name(h, t);
    if (t.narrowed)
      return constants::with_element(t.type, [&](auto element) {
        using T = decltype(element);
        const auto elements = static_cast<std::uint32_t>(t.bytes / sizeof(T));
        narrowed_elements<T> some;
        for (std::uint32_t first = 0; first < elements; first += some.n) {
          if (const errc wrong = narrow<T>(t.begin, elements, first, elements - first, some); wrong != errc{})
            return wrong;
          const std::span<T> moves(some.base, some.n);
          scheme::template move<T>(moves, scale_, {some.codes, some.n});
          turn(moves);
          h.update(std::as_bytes(moves));
        }
        return errc{};
      });
    std::byte some[64];
    for (std::uint32_t done = 0, n = 0; done < t.bytes; done += n) {
      n = least(t.bytes - done, sizeof some);
      whole::read(model_, t.begin + done, {some, n});
      h.update({some, n});
    }
    return {};
  }

  errc read_part(const detail::embedded::narrowed_part& p, std::uint32_t offset,
                 std::span<std::byte> out) const noexcept {
    if (p.kind == kind::whole) {
      whole::read(model_, p.begin + offset, out);
      return {};
    }
    return constants::with_element(p.type, [&](auto element) {
      using T = decltype(element);
      std::byte* to = out.data();
      if (p.kind == kind::scales) {
        for (std::size_t left = out.size(); left > 0; --left, ++offset) {
          if (const errc why = find_scale<T>(p.begin, p.elements, offset / 4 * block_elements); why != errc{})
            return why;
          *to++ = static_cast<std::byte>(std::bit_cast<std::uint32_t>(scale_) >> 8 * (offset % 4) & 255);
        }
        return errc{};
      }
      narrowed_elements<T> some;
      for (auto left = static_cast<std::uint32_t>(out.size()); left > 0; left -= some.n, offset += some.n) {
        if (const errc why = narrow<T>(p.begin, p.elements, offset, left, some); why != errc{}) return why;
        std::memcpy(to, some.codes, some.n);
        to += some.n;
      }
      return errc{};
    });
  }

  const Model& model_;
  Base& base_;
  std::uint64_t from_ = 0, to_ = 0;  // digests of the base, and of what it becomes
  // the scale that was computed last, and of which block: where that begins in the model's data section
  mutable std::uint32_t scale_at_ = no_scale;
  mutable float scale_ = 0;
};

/// The image of a difference, constant but for the digests in its header.
template <class Model, class Base, std::size_t BlockElements, class Which>
struct embedded_image<embedded_difference<Model, Base, BlockElements, Which>>
    : detail::embedded::narrowed_image<Model, blocks_of_8_bits<BlockElements, Which>> {
  /// The difference.
  using model_type = embedded_difference<Model, Base, BlockElements, Which>;
  /// Reads a range of the data section. False: it cannot be read.
  static bool read(const model_type& from, std::uint32_t at, std::span<std::byte> out) noexcept {
    return from.read(at, out);
  }
  /// Reads a range of the header.
  static void read_header(const model_type& from, std::uint32_t at, std::span<std::byte> out) noexcept {
    from.read_header(at, out);
  }
};

}  // namespace tensorpull
