// The difference of a small machine's model to its base, in 8 bits: a quarter of the bytes of the whole. It is computed
// as it is read, so neither a second model nor the difference is in memory; the base stays where it has landed, in
// flash or in memory. The bytes are those of narrowed_difference (satellites/differences/narrowed_difference.hpp);
// recipients apply them with `widened` or `move_by`.
#pragma once

#include <tensorpull/core/digits.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/embedded/members.hpp>
#include <tensorpull/satellites/differences/scheme/scaled_blocks.hpp>

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <string_view>

namespace tensorpull {

namespace detail::embedded {

inline constexpr std::string_view behind_scales = ".scales";

/// The tensors of a difference, in the order of the model's members: two for each one that is narrowed.
template <const auto& Names, std::size_t BlockElements>
struct narrowed_names {
  static constexpr bool is_pair(std::size_t i) noexcept { return is_narrowed(Names.leaves[i].type); }
  static constexpr std::uint64_t elements(std::size_t i) noexcept {
    return Names.leaves[i].bytes / (bits(Names.leaves[i].type) / 8);
  }
  static constexpr std::size_t count = [] {
    std::size_t n = Names.count;
    for (std::size_t i = 0; i < Names.count; ++i) n += is_pair(i) ? 1 : 0;
    return n;
  }();
  static constexpr std::size_t characters = [] {
    std::size_t n = 0;
    for (std::size_t i = 0; i < Names.count; ++i)
      n += Names.leaves[i].name_length + (is_pair(i) ? Names.leaves[i].name_length + behind_scales.size() : 0);
    return n;
  }();
  /// The shape of each tensor of scales.
  static constexpr auto blocks = [] {
    std::array<std::uint64_t, Names.count + 1> list{};
    for (std::size_t i = 0; i < Names.count; ++i)
      if (is_pair(i)) list[i] = blocks_of_8_bits<BlockElements>::blocks(elements(i));
    return list;
  }();
  static constexpr auto names = [] {
    static_names<count, characters> made;
    std::uint32_t used = 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < Names.count; ++i) {
      static_leaf leaf = Names.leaves[i];
      const bool pair = is_pair(i);
      const auto name = [&](std::string_view behind) {
        leaf.name_begin = used;
        for (const char c : Names.name(i)) made.characters[used++] = c;
        for (const char c : behind) made.characters[used++] = c;
        leaf.name_length = used - leaf.name_begin;
      };
      name({});
      if (pair) leaf.type = dtype::i8, leaf.bytes = elements(i);
      made.leaves[at++] = leaf;
      if (!pair) continue;
      name(behind_scales);
      leaf.type = dtype::f32, leaf.rank = 1, leaf.shape = &blocks[i], leaf.bytes = 4 * blocks[i];
      made.leaves[at++] = leaf;
    }
    return made;
  }();
};

/// The role of a difference's tensor for a tensor of the model.
enum class narrowed_kind : std::uint8_t {
  whole,
  codes,
  scales
};
struct narrowed_part {
  std::uint32_t end = 0;  // in the difference's data section
  std::uint32_t begin = 0;  // of the model's tensor, in the model's data section
  std::uint32_t elements = 0;  // of the model's tensor
  dtype type = dtype::u8;  // of the model's tensor
  narrowed_kind kind = narrowed_kind::whole;
};
struct narrowed_tensor {
  std::uint32_t begin = 0, bytes = 0;
  std::uint16_t name_begin = 0, name_length = 0;
  dtype type = dtype::u8;
};

/// A number as text.
template <std::size_t N>
inline constexpr tensorpull::detail::decimal digits_of{N};
/// The digests are filled in as the header is read.
inline constexpr std::string_view no_digest = "0000000000000000";
template <std::size_t BlockElements>
inline constexpr metadata_list<3> narrowed_metadata{{{"tensorpull.base", no_digest},
                                                     {"tensorpull.blocks_of_8_bits", digits_of<BlockElements>.view()},
                                                     {"tensorpull.moved", no_digest}}};

template <class Model, std::size_t BlockElements>
using static_narrowed_image =
    static_image<narrowed_names<names_of<Model, true>, BlockElements>::names, narrowed_metadata<BlockElements>>;

/// The constants of a difference's image. Its header has zeros for both digests.
template <class Model, std::size_t BlockElements>
struct narrowed_image : image_constants<static_narrowed_image<Model, BlockElements>> {
 private:
  static constexpr const auto& model_names = names_of<Model, true>;
  using list = narrowed_names<model_names, BlockElements>;
  static_assert(!has_duplicate_names<list::names>(),
                "tensorpull: a tensor of the model is called like the scales of another: NAME.scales");
  using whole = static_image<model_names>;
  using image = static_narrowed_image<Model, BlockElements>;

 protected:
  using image_constants<static_narrowed_image<Model, BlockElements>>::header;
  /// After a key of the metadata.
  static constexpr std::uint32_t place_of(std::string_view key) noexcept {
    for (std::size_t i = 0; i + key.size() <= header.size(); ++i) {
      std::size_t n = 0;
      while (n < key.size() && static_cast<char>(header[i + n]) == key[n]) ++n;
      if (n == key.size()) return static_cast<std::uint32_t>(i + n);
    }
    return 0;
  }
  static constexpr std::uint32_t base_at = place_of(R"("tensorpull.base":")"),
                                 moved_at = place_of(R"("tensorpull.moved":")");
  static_assert(base_at != 0 && moved_at != 0);

  /// The tensors of the difference, in image order.
  static constexpr auto parts = [] {
    std::array<narrowed_part, image::count + 1> made{};
    std::array<std::uint32_t, image::count + 1> rank{};
    for (std::size_t i = 0; i < image::count; ++i) rank[image::order.at[i]] = static_cast<std::uint32_t>(i);
    std::size_t at = 0;
    for (std::size_t k = 0; k < whole::count; ++k) {
      const tensor_entry& t = whole::placed.at[whole::rank.at[k]];
      const bool pair = list::is_pair(k);
      for (const narrowed_kind kind : {pair ? narrowed_kind::codes : narrowed_kind::whole, narrowed_kind::scales}) {
        if (!pair && kind == narrowed_kind::scales) continue;
        const std::uint32_t i = rank[at++];
        made[i] = {static_cast<std::uint32_t>(image::placed.at[i].end), static_cast<std::uint32_t>(t.begin),
                   static_cast<std::uint32_t>(list::elements(k)), t.type, kind};
      }
    }
    return made;
  }();
  /// The tensors of the model, in image order, and their names.
  static constexpr std::size_t model_count = whole::count;
  static constexpr auto tensors = [] {
    std::array<narrowed_tensor, whole::count + 1> made{};
    std::size_t used = 0;
    for (std::size_t i = 0; i < whole::count; ++i) {
      const tensor_entry& t = whole::placed.at[i];
      made[i] = {static_cast<std::uint32_t>(t.begin), static_cast<std::uint32_t>(t.end - t.begin),
                 static_cast<std::uint16_t>(used), static_cast<std::uint16_t>(t.name.size()), t.type};
      used += t.name.size();
    }
    return made;
  }();
  static_assert(model_names.character_count <= 0xffff, "tensorpull: the names of the model are too long");
  static constexpr auto text = [] {
    std::array<char, model_names.character_count + 1> made{};
    std::size_t used = 0;
    for (std::size_t i = 0; i < whole::count; ++i)
      for (const char c : whole::placed.at[i].name) made[used++] = c;
    return made;
  }();

  static constexpr bool has(dtype type) noexcept {
    for (std::size_t i = 0; i < whole::count; ++i)
      if (whole::placed.at[i].type == type) return true;
    return false;
  }
  /// Of some tensor and its name.
  static constexpr bool has_short_input = [] {
    for (std::size_t i = 0; i < whole::count; ++i)
      if (tensors[i].bytes + tensors[i].name_length < lean_xxh3_64::least_bytes) return true;
    return false;
  }();
  /// with_movable() with code only for the types of this model.
  template <class F>
  static errc with_element(dtype type, F&& f) noexcept {
    if constexpr (has(dtype::f32))
      if (type == dtype::f32) return f(float{});
    if constexpr (has(dtype::f64))
      if (type == dtype::f64) return f(double{});
    if constexpr (has(dtype::f16))
      if (type == dtype::f16) return f(float16{});
    if constexpr (has(dtype::bf16))
      if (type == dtype::bf16) return f(bfloat16{});
    return errc::unsupported_dtype;
  }
};

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

/// A model less a base in 8 bits, for an embedded_owner<embedded_difference<...>, N>. `BlockElements` share a scale.
/// Memory: 32 bytes, and up to 1 KiB of the stack in prepare(). Code and constants: about 3 KiB, and software
/// arithmetic of doubles on a Cortex-M3.
///
/// Model and base must not change from prepare() until the publication ends. If one does, recipients get a mix, and
/// none of them ends as completed.
template <class Model, difference_base Base, std::size_t BlockElements = 256>
class embedded_difference : private detail::embedded::narrowed_image<Model, BlockElements> {
  using constants = detail::embedded::narrowed_image<Model, BlockElements>;
  using scheme = blocks_of_8_bits<BlockElements>;
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
    if (detail::is_narrowed(t.type))
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
template <class Model, class Base, std::size_t BlockElements>
struct embedded_image<embedded_difference<Model, Base, BlockElements>>
    : detail::embedded::narrowed_image<Model, BlockElements> {
  /// The difference.
  using model_type = embedded_difference<Model, Base, BlockElements>;
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
