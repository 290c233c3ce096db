// The difference (delta) between two versions of a model, without loss, as a model: one tensor of bytes, published and
// pulled like any other.
#pragma once

#include <tensorpull/core/derived_id.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/image/dynamic.hpp>
#include <tensorpull/image/read_range.hpp>
#include <tensorpull/integrity/concept.hpp>
#include <tensorpull/protocol/owner/transaction.hpp>
#include <tensorpull/satellites/differences/block.hpp>
#include <tensorpull/std/stop_token.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

namespace tensorpull {

/// The beginning of a difference: 64 bytes, little-endian, before the coded blocks. Those are of each tensor in the
/// order of the image, each after its length in 4 bytes.
struct difference_prologue {
  static constexpr std::size_t bytes = 64;  ///< its length
  static constexpr std::uint64_t magic = 0x0002666669647074;  ///< "tpdiff", and the version of this format

  std::uint64_t fingerprint = 0;  ///< of names, dtypes and shapes, which both versions have
  std::uint64_t data_bytes = 0;  ///< of the tensors
  std::uint64_t to = 0;  ///< XXH3-64 of the new tensors' bytes, in the order of the image
  std::uint64_t block_bytes = 0;  ///< difference_block_bytes of the program that made it
  std::uint64_t coder = 0;  ///< difference_coder's `id`

  /// Writes all 64 bytes.
  void write(std::span<std::byte, bytes> out) const noexcept {
    const std::uint64_t words[] = {magic, fingerprint, data_bytes, to, block_bytes, coder, 0, 0};
    for (std::size_t i = 0; i < 8; ++i) store_le64(&out[8 * i], words[i]);
  }
  /// bad_frame: not a difference that this version reads.
  static result<difference_prologue> read(std::span<const std::byte, bytes> in) noexcept {
    const auto word = [&](std::size_t i) { return load_le64(&in[8 * i]); };
    if (word(0) != magic || (word(6) | word(7)) != 0) return failure(errc::bad_frame);
    return difference_prologue{word(1), word(2), word(3), word(4), word(5)};
  }
};

namespace detail {

/// Calls `f(entry, offset, bytes)` for each block of an image in order, until an error.
template <class F>
result<void> for_each_block(const image_schema& schema, F f) noexcept {
  for (std::size_t i = 0; i < schema.tensor_count; ++i) {
    const tensor_entry& t = schema.tensors[i];
    for (std::uint64_t at = t.begin, n = 0; at < t.end; at += n) {
      n = std::min<std::uint64_t>(difference_block_bytes, t.end - at);
      if (const auto ok = f(t, schema.header_bytes + at, static_cast<std::size_t>(n)); !ok) return ok;
    }
  }
  return {};
}

}  // namespace detail

/// The ID under which the difference from another version to `whole` can be published (derived_id). A recipient that
/// knows `whole` and has that version finds it without a second reference. `from_version`: of the recipient's image;
/// both versions are those of verifiable images.
constexpr ref_id difference_id(const reference& whole, std::uint64_t from_version) noexcept {
  return derived_id("tpdifference", whole, from_version);
}
/// How the difference from that version to `whole` is published: under this ID, and beside `whole`, whose budgets do
/// not end while somebody takes the difference.
constexpr publish_options difference_options(const reference& whole, std::uint64_t from_version) noexcept {
  publish_options how;
  how.id = difference_id(whole, from_version);
  how.beside = whole.id;
  return how;
}

/// A difference, coded once for all recipients. Publish it, or keep its bytes in a file.
class model_difference {
 public:
  /// Codes the difference from `from` to `to`: the same tensors, in memory or not, neither of which changes meanwhile.
  /// Reads each once. Cost: with deflate_coder 6 to 7 s for each GiB of F32 elements that a step of training has
  /// changed; blocks of which few elements have changed, and none, pass at nearly the speed of memory. Memory: the
  /// coded bytes, and three blocks during the call. Errors: schema_mismatch: the tensors have other names, dtypes or
  /// shapes; too_large: longer than `most_bytes`, so the whole is as good; io: a source_reader failed; out_of_memory;
  /// cancelled.
  template <difference_coder Coder, hash Hash = xxh3_64>
  static result<model_difference> make(const source_view& from, const source_view& to, Coder& coder,
                                       std::uint64_t most_bytes = ~std::uint64_t{0},
                                       const stop_token& stop = {}) noexcept {
    const image_schema& schema = *to.schema;
    if (from.schema->fingerprint != schema.fingerprint || from.schema->data_bytes() != schema.data_bytes())
      return failure(errc::schema_mismatch);
    constexpr std::size_t block = difference_block_bytes;
    model_difference made;
    const auto room = allocate(3 * block);
    if (room == nullptr || !made.grow(difference_prologue::bytes)) return failure(errc::out_of_memory);
    made.size_ = difference_prologue::bytes;
    Hash after;
    const auto coded = detail::for_each_block(
        schema, [&](const tensor_entry& t, std::uint64_t at, std::size_t n) noexcept -> result<void> {
          if (stop.stop_requested()) return failure(errc::cancelled, at);
          const std::span scratch(room.get() + 2 * block, n);
          const std::uint64_t from_header = from.schema->header_bytes - schema.header_bytes;  // they may differ in
                                                                                              // metadata
          const auto old = detail::look_at_range(from, at + from_header, std::span(room.get(), n)),
                     now = detail::look_at_range(to, at, std::span(room.get() + block, n));
          if (!old || !now) return failure((old ? now : old).error());
          after.update(*now);
          if (!made.grow(made.size_ + 4 + coded_block_bound(n))) return failure(errc::out_of_memory);
          std::byte* const here = made.bytes_.get() + made.size_;
          const std::size_t k = encode_block(coder, t.type, *old, *now, std::span(here + 4, coded_block_bound(n)),
                                             scratch);
          detail::store_element(here, static_cast<std::uint32_t>(k));
          made.size_ += 4 + k;
          if (made.size_ > most_bytes) return failure(errc::too_large, made.size_);
          return {};
        });
    if (!coded) return failure(coded.error());
    const difference_prologue begin{schema.fingerprint, schema.data_bytes(), after.digest(), block, Coder::id};
    begin.write(std::span<std::byte, difference_prologue::bytes>(made.bytes_.get(), difference_prologue::bytes));
    const std::array<std::uint64_t, 1> shape{made.size_};
    const tensor_view one{.name = "difference", .type = dtype::u8, .shape = shape, .data = made.bytes_.get()};
    auto image = dynamic_image::make(std::span(&one, 1));
    if (!image) return failure(image.error());
    made.image_.reset(new (std::nothrow) dynamic_image(std::move(*image)));
    if (made.image_ == nullptr) return failure(errc::out_of_memory);
    return made;
  }

  /// Valid while this object lives, also after a move.
  std::span<const std::byte> bytes() const noexcept { return {bytes_.get(), size_}; }
  /// To publish it: a safetensors file of one tensor, "difference", of `bytes()`. Valid while this object lives.
  source_view image() const noexcept { return image_->source(); }

 private:
  struct release {
    void operator()(std::byte* p) const noexcept { std::free(p); }
  };
  using memory = std::unique_ptr<std::byte[], release>;

  model_difference() noexcept = default;
  static memory allocate(std::size_t n) noexcept { return memory(static_cast<std::byte*>(std::malloc(n))); }
  bool grow(std::size_t wanted) noexcept {
    if (wanted <= room_) return true;
    const std::size_t room = std::max(wanted, room_ + room_ / 2);
    auto* const grown = static_cast<std::byte*>(std::realloc(bytes_.get(), room));
    if (grown == nullptr) return false;
    (void)bytes_.release();
    bytes_.reset(grown);
    room_ = room;
    return true;
  }

  memory bytes_;
  std::size_t size_ = 0, room_ = 0;
  std::unique_ptr<dynamic_image> image_;
};

}  // namespace tensorpull
