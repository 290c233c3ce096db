// Applies a narrowed difference as it arrives (dequantises a quantised delta): the moved elements go to another
// consumer, as if the whole model had arrived. So it is averaged without ever being a model, or moves a model in place.
#pragma once

#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/consumers/land.hpp>
#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/limits.hpp>
#include <tensorpull/image/header_reader.hpp>
#include <tensorpull/satellites/differences/detail/step_layout.hpp>
#include <tensorpull/satellites/differences/narrowed_difference.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace tensorpull {

/// The tensors that a base of a step has: all of the sender's model, or perhaps those alone that the step moves.
enum class step_base : std::uint8_t {
  whole,
  part
};

/// The consumer of narrowed differences to `base` that gives `Inner` the moved model, element by element, with the
/// sender's bits. For one transfer at a time. `Inner` sees the data section alone, as of a subset
/// (description::data_start is 0), in pieces of at most 4 KiB that are chunks to it. It may be
///  - `weighted_average<...>::update`: the update is averaged as it arrives, tensors that travel whole before others.
///    Its chunk buffers have at least 4 KiB;
///  - `land` into the model that `base` views: it is moved in place. If the transfer fails after a byte has moved, the
///    model is neither version, and the next difference to it is refused (stale_version).
///
/// Tensors that stand still do not arrive. `Inner` is given the base's, between two that arrive or after the last, in
/// one go; into the base itself nothing is copied.
///
/// The base is compared before `Inner` gets a byte, by the digests in the difference's metadata. All that arrived is
/// compared at the end, whatever the digests of chunks were. A chunk is held until it is complete and its digest was
/// right. One that is longer than make() was told is applied as it arrives if `Inner` is not irrevocable, and the
/// digest at the end decides; without digests of chunks, a chunk that continues after a lost connection is one. Memory,
/// taken by make(): the scales (4 bytes for each block), a chunk, three tables of the tensors, and later the text of
/// the header (at most 64 KiB of metadata) and its table. A block is moved on the stack.
///
/// Errors besides those of `Inner`, with the tensor's name if there is one: missing_field (no metadata of the scheme,
/// or of another N); schema_mismatch (a tensor that `base` has not, or has in another kind or order); stale_version
/// (another base); value_out_of_range (a scale that is NaN, infinite, negative or
/// subnormal); does_not_fit (`Inner` is irrevocable, and a chunk is longer than make() was told); too_large (more
/// metadata); digest_mismatch (at the end: the result is not the sender's); bad_frame; out_of_memory.
template <consumer Inner, class Scheme = blocks_of_8_bits<>>
class widened {
 public:
  static constexpr bool irrevocable = Inner::irrevocable;  ///< as Inner

  /// Borrows both; `base` is in plain memory. Errors, with the tensor's name: unsupported_layout (it is not in plain
  /// memory; or `Inner` takes tensors in the model's order alone, as an average with divide_by_reached, and this one
  /// arrives before others that it has to get first: one that travels whole, or of another type); duplicate_name (a
  /// tensor is named like another's scales); those of dynamic_image; out_of_memory (a chunk cannot be so long). Throws
  /// std::bad_alloc if there is no memory. With step_base::part the tensors of `base` that the step does not move are
  /// not compared with the sender's: the caller knows of them otherwise.
  [[nodiscard]] static result<widened> make(Inner& inner, const source_view& base,
                                            std::uint64_t chunk_bytes = default_chunk_bytes,
                                            step_base has = step_base::whole) {
    auto layout = detail::step_layout<Scheme>::make(*base.schema, !detail::takes_any_tensor_order<Inner>);
    if (!layout) return failure(layout.error());
    auto parts = std::make_unique<state>(std::move(*layout), has);
    parts->scales.resize(parts->layout.scales());
    if (chunk_bytes > static_cast<std::size_t>(-1) / 2) return failure(errc::out_of_memory);
    parts->chunk.resize(static_cast<std::size_t>(std::max<std::uint64_t>(chunk_bytes, 1)));
    return widened(inner, base, std::move(parts));
  }

  static std::uint64_t fingerprint() noexcept { return 0; }  // a step may have any of the tensors
  static const image_schema* schema() noexcept { return nullptr; }

  result<void> begin(const description& d) noexcept {
    const image_schema& model = *base_.schema;
    if (d.data_start == 0 || d.data_start > d.image_bytes || d.image_bytes - d.data_start > ours().data_bytes() ||
        d.tensors > ours().tensor_count || (d.tensors == ours().tensor_count && d.fingerprint != ours().fingerprint))
      return failure(errc::schema_mismatch);
    // its text is kept, so what it adds to the tensors' is bounded
    if (d.data_start > ours().header_bytes + most_metadata_bytes) return failure(errc::too_large, d.data_start);
    data_start_ = d.data_start;
    end_ = d.image_bytes;
    taken_ = given_ = sum_ = 0;
    tensor_ = still_ = 0;
    state_->layout.clear();
    hashing_ = false;
    header_.emplace(ours().tensor_count);
    description whole_model = d;
    whole_model.fingerprint = model.fingerprint;
    whole_model.image_bytes = model.data_bytes();
    whole_model.data_start = 0;
    whole_model.tensors = static_cast<decltype(d.tensors)>(model.tensor_count);
    return inner_->begin(whole_model);
  }
  prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    if (length == 0 || out.empty()) return {};
    // if the inner consumer has no memory now, this one has none either: what it is given at the end of a chunk cannot
    // wait
    if (std::array<std::span<std::byte>, 1> room;
        given_ < base_.schema->data_bytes() && inner_->prepare(given_, 1, room).pieces == 0)
      return {};
    const std::span<std::byte> all(state_->chunk);
    if (offset < taken_) return detail::prepare_in(all, std::min(length, taken_ - offset), out);  // arrives again
    const std::uint64_t filled = offset - taken_;
    if (filled >= all.size()) return detail::prepare_in(all.first(1), length, out);  // commit() reports it
    return detail::prepare_in(all.subspan(static_cast<std::size_t>(filled)), length, out);
  }
  result<void> commit(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    if (offset < taken_) return {};
    const std::uint64_t filled = offset - taken_ + bytes.size(), all = state_->chunk.size();
    if constexpr (irrevocable) {
      if (filled > all) return failure(errc::does_not_fit, all);
      return {};
    } else {
      return filled < all ? result<void>{} : take_held(static_cast<std::size_t>(filled));
    }
  }
  result<void> chunk(std::uint64_t offset, std::uint64_t length) noexcept {
    const std::uint64_t end = offset + length;
    if (offset > taken_ || end > taken_ + state_->chunk.size()) return failure(errc::invalid_argument, offset);
    return end > taken_ ? take_held(static_cast<std::size_t>(end - taken_)) : result<void>{};
  }
  void rewind(std::uint64_t) noexcept {}  // taken bytes are skipped when they arrive again
  result<void> finish(const receipt& r) noexcept {
    if (taken_ != end_) return failure(errc::invalid_argument, taken_);
    end_tensors();
    if (detail::hex_digits(sum_).view() != std::string_view(leads_to_.data(), 16))
      return failure(errc::digest_mismatch);
    return inner_->finish(r);
  }
  void abandon(const error& why) noexcept { inner_->abandon(why); }
  /// The peer's confirmation was answered.
  void confirmed() noexcept
    requires requires(Inner& i) { i.confirmed(); }
  {
    inner_->confirmed();
  }

 private:
  using part = detail::step_part;
  struct state {
    detail::step_layout<Scheme> layout;
    step_base has;
    std::vector<float> scales;
    std::vector<std::byte> chunk;

    state(detail::step_layout<Scheme> of, step_base base_has) : layout(std::move(of)), has(base_has) {}
  };
  static constexpr std::size_t piece_bytes = 4096, most_metadata_bytes = std::size_t{64} * 1024;

  widened(Inner& inner, const source_view& base, std::unique_ptr<state> parts) noexcept
      : inner_(&inner), base_(base), state_(std::move(parts)) {}

  /// Of a step that moves all tensors.
  const image_schema& ours() const noexcept { return state_->layout.all(); }
  bool stands_still(std::size_t i) const noexcept { return state_->layout.stands_still(i); }

  /// The held bytes, from taken_ on.
  result<void> take_held(std::size_t n) noexcept {
    std::span<const std::byte> bytes(state_->chunk.data(), n);
    if (taken_ < data_start_) {
      const auto text = static_cast<std::size_t>(std::min<std::uint64_t>(data_start_ - taken_, bytes.size()));
      if (const auto ok = take_header(bytes.first(text)); !ok) return ok;
      taken_ += text;
      bytes = bytes.subspan(text);
    }
    while (!bytes.empty()) {
      const auto took = take(bytes);
      if (!took) return failure(took.error());
      taken_ += *took;
      bytes = bytes.subspan(*took);
    }
    return taken_ == end_ ? give_still(base_.schema->tensor_count) : result<void>{};
  }
  result<void> take_header(std::span<const std::byte> bytes) noexcept {
    try {
      if (const auto ok = header_->take(bytes); !ok) return ok;
      if (taken_ + bytes.size() < data_start_) return {};
      if (!header_->complete()) return failure(errc::bad_frame, data_start_);
      std::vector<tensor_entry> tensors;
      std::vector<std::uint64_t> extents;
      std::vector<metadata_entry> metadata;
      header_->entries(tensors, extents, metadata);
      if (const auto ok = state_->layout.arrange(*base_.schema, tensors, end_ - data_start_); !ok) return ok;
      return look_at(metadata);
    } catch (const std::bad_alloc&) {
      return failure(errc::out_of_memory);
    }
  }
  result<void> look_at(std::span<const metadata_entry> metadata) noexcept {
    const auto said = [&](std::string_view key) { return detail::metadata_value(metadata, key); };
    const std::string_view scheme = said(Scheme::key), moved_to = said("tensorpull.moved");
    if (scheme != detail::decimal(Scheme::block_elements).view() || moved_to.size() != leads_to_.size())
      return failure(errc::missing_field, 0, Scheme::key);
    std::uint64_t sum = 0, still = 0;
    for (std::size_t i = 0; i < base_.schema->tensor_count; ++i) {
      if (stands_still(i) && state_->has == step_base::part) continue;
      const tensor_entry& t = base_.schema->tensors[i];
      (stands_still(i) ? still : sum) += detail::tensor_digest(
          t.name, t.type, {base_.address(i), static_cast<std::size_t>(t.size_bytes())});
    }
    if (said("tensorpull.base") != detail::hex_digits(sum).view()) return failure(errc::stale_version);
    if (state_->has == step_base::whole && !detail::stand_still(said("tensorpull.still"), still))
      return failure(errc::stale_version);
    std::copy(moved_to.begin(), moved_to.end(), leads_to_.begin());
    return {};
  }

  /// Takes bytes of one tensor, and returns how many.
  result<std::size_t> take(std::span<const std::byte> bytes) noexcept {
    end_tensors();
    const auto& comes = state_->layout.arriving()[tensor_];
    const std::uint64_t at = taken_ - data_start_ - comes.begin;
    const std::size_t i = comes.of;
    const tensor_entry& t = base_.schema->tensors[i];
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(comes.size_bytes() - at, bytes.size()));
    bytes = bytes.first(n);
    if (comes.is != part::scales)
      if (const auto ok = give_still(i); !ok) return failure(ok.error());
    switch (comes.is) {
      case part::scales: {
        std::memcpy(reinterpret_cast<std::byte*>(state_->scales.data() + state_->layout.first_scale(i)) + at,
                    bytes.data(), n);
        return at + n < comes.size_bytes() ? result<std::size_t>(n) : check_scales(i, n);
      }
      case part::whole: {
        hash_.update(bytes);
        return sent(give(t.begin + at, bytes), n);
      }
      default:
        return detail::with_movable(t.type, result<std::size_t>(failure(errc::unsupported_dtype)), [&](auto element) {
          return sent(move<decltype(element)>(i, at * Scheme::byte_elements, bytes), n);
        });
    }
  }
  static result<std::size_t> sent(const result<void>& ok, std::size_t n) noexcept {
    return ok ? result<std::size_t>(n) : result<std::size_t>(failure(ok.error()));
  }
  result<std::size_t> check_scales(std::size_t i, std::size_t n) noexcept {
    const tensor_entry& t = base_.schema->tensors[i];
    const std::size_t first = state_->layout.first_scale(i);
    for (std::size_t b = 0; b < Scheme::blocks(detail::elements_of(t)); ++b) {
      float& scale = state_->scales[first + b];
      scale = std::bit_cast<float>(static_cast<std::uint32_t>(load_le32(reinterpret_cast<const std::byte*>(&scale))));
      if (!is_scale(scale)) return failure(errc::value_out_of_range, taken_, t.name);
    }
    return n;
  }
  /// The elements from `first` on that these codes move.
  template <class T>
  result<void> move(std::size_t i, std::uint64_t first, std::span<const std::byte> moves) noexcept {
    std::array<T, piece_bytes / sizeof(T)> piece;
    while (!moves.empty()) {
      // not across the end of a block, whose scale is another; the last byte may have one element alone
      const std::size_t n = detail::smaller(
          detail::elements_of(base_.schema->tensors[i]) - first,
          std::min({moves.size() * Scheme::byte_elements, piece.size(),
                    static_cast<std::size_t>(Scheme::block_elements - first % Scheme::block_elements)}));
      const auto used = static_cast<std::size_t>(Scheme::code_bytes(n));
      std::memcpy(piece.data(), base_.address(i) + first * sizeof(T), n * sizeof(T));
      const float scale =
          state_->scales[state_->layout.first_scale(i) + static_cast<std::size_t>(first / Scheme::block_elements)];
      Scheme::template move<T>(std::span(piece).first(n), scale,
                               {reinterpret_cast<const typename Scheme::code_type*>(moves.data()), used});
      const auto made = std::as_bytes(std::span<const T>(piece.data(), n));
      if constexpr (!little_endian_machine)  // an image is little-endian
        for (T& one : std::span(piece).first(n)) {
          auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(one);
          std::ranges::reverse(bytes);
          one = std::bit_cast<T>(bytes);
        }
      hash_.update(made);
      if (const auto ok = give(base_.schema->tensors[i].begin + first * sizeof(T), made); !ok) return ok;
      first += n;
      moves = moves.subspan(used);
    }
    return {};
  }
  result<void> give(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    while (!bytes.empty()) {
      const std::size_t all = std::min(bytes.size(), piece_bytes);
      for (std::size_t filled = 0; filled < all;) {
        std::array<std::span<std::byte>, 1> room;
        if (inner_->prepare(offset + filled, all - filled, room).pieces == 0) return failure(errc::busy, offset);
        const std::size_t n = std::min(room[0].size(), all - filled);
        if (room[0].data() != bytes.data() + filled) std::memcpy(room[0].data(), bytes.data() + filled, n);
        if (const auto ok = inner_->commit(offset + filled, room[0].first(n)); !ok) return ok;
        filled += n;
      }
      if (const auto ok = inner_->chunk(offset, all); !ok) return ok;
      given_ += all;
      offset += all;
      bytes = bytes.subspan(all);
    }
    return {};
  }
  /// The base's tensors before that one which stand still, and were not given yet.
  result<void> give_still(std::size_t before) noexcept {
    for (; still_ < before; ++still_) {
      if (!stands_still(still_)) continue;
      const tensor_entry& t = base_.schema->tensors[still_];
      std::span<const std::byte> bytes(base_.address(still_), static_cast<std::size_t>(t.size_bytes()));
      if constexpr (little_endian_machine) {
        if (const auto ok = give(t.begin, bytes); !ok) return ok;
      } else {
        for (std::uint64_t at = t.begin; !bytes.empty();) {
          std::array<std::byte, piece_bytes> piece;
          const std::size_t n = std::min(bytes.size(), piece_bytes);
          std::memcpy(piece.data(), bytes.data(), n);
          detail::from_little_endian(t.type, {piece.data(), n});
          if (const auto ok = give(at, {piece.data(), n}); !ok) return ok;
          at += n;
          bytes = bytes.subspan(n);
        }
      }
    }
    return {};
  }
  /// Moves past complete tensors, and adds their digests.
  void end_tensors() noexcept {
    const auto arriving = state_->layout.arriving();
    for (; tensor_ < arriving.size(); ++tensor_) {
      const auto& comes = arriving[tensor_];
      if (!std::exchange(hashing_, true) && comes.is != part::scales) {
        hash_ = {};
        hash_.update(base_.schema->tensors[comes.of].name);
      }
      if (taken_ - data_start_ < comes.end) return;
      if (comes.is != part::scales) sum_ += hash_.digest();
      hashing_ = false;
    }
  }

  Inner* inner_;
  source_view base_;
  std::unique_ptr<state> state_;
  std::optional<header_reader> header_;
  std::uint64_t data_start_ = 0, end_ = 0, taken_ = 0, sum_ = 0;
  std::uint64_t given_ = 0;  // bytes of the model that the inner consumer has
  std::size_t tensor_ = 0;  // the first that is not whole
  std::size_t still_ = 0;  // the model's first that may stand still and was not given
  xxh3_64 hash_{};
  std::array<char, 16> leads_to_{};
  bool hashing_ = false;
};
static_assert(consumer<widened<land>>);

}  // namespace tensorpull
