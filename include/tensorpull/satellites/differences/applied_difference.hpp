// Applies a difference to a model as it arrives.
#pragma once

#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/consumers/land.hpp>
#include <tensorpull/core/limits.hpp>
#include <tensorpull/image/booleans.hpp>
#include <tensorpull/integrity/range_digest.hpp>
#include <tensorpull/satellites/differences/difference.hpp>

#include <limits>
#include <memory>
#include <new>

namespace tensorpull {

/// How far a difference has been applied. `untouched`: the model is the old version; `partly`: it is neither version,
/// and the same consumer has to go on, or the whole to be pulled; `applied`: it is the new version, by its digest.
enum class difference_state : std::uint8_t {
  untouched,
  partly,
  applied
};

/// Applies a difference to a model in memory, in place, a block at a time, in order, in one pass.
/// Each block's form is checked before an element of it changes, and so is that its old elements are those that it was
/// made from: in a block of which few change, those alone. At the end the digest of all tensors is compared, so the
/// result is the new version, to_digest(), or an error. If the owner may lie, compare that digest with the expected
/// one, as download_changes does.
///
/// A chunk is applied only when it is complete and, if the integrity policy asks for it, its digest was right. So a
/// chunk that was damaged or cut off arrives again without harm. A chunk that is longer than make()'s `chunk_bytes` is
/// applied as it arrives; damage is then found by the digest at the end.
///
/// Memory: `chunk_bytes` and about three blocks (200 KiB), taken once, and the coder's. After a lost connection the
/// same transfer continues. Another transfer of the same version with the same consumer goes on, too: it passes over
/// the blocks that were applied, once their digest has shown that they are still there. With another consumer a model
/// that is partly changed is refused by the first block (digest_mismatch): then the whole is pulled.
///
/// Errors besides the coder's: bad_frame: it is not a difference, or longer than one can be, or has malformed blocks;
/// too_large: its header has more than 64 KiB;
/// schema_mismatch: it is of another model; unsupported_layout: another coder, or another block size; digest_mismatch:
/// the model is not the version that it begins from, or it leads to something else;
/// value_out_of_range: a member of type `bool` would be neither 0 nor 1.
template <difference_coder Coder, hash Hash = xxh3_64>
class applied_difference {
 public:
  static constexpr bool irrevocable = false;  ///< the digests at the end decide

  /// Borrows the view's memory and the coder. Errors: out_of_memory; invalid_argument: the model cannot be read.
  static result<applied_difference> make(const destination_view& model, Coder& coder,
                                         std::uint64_t chunk_bytes = default_chunk_bytes) noexcept {
    if (!model.readable()) return failure(errc::invalid_argument);
    // the begin of a block that goes on in the chunk may lie in front of it, and the next block has to fit
    constexpr std::size_t block = coded_block_bound(difference_block_bytes) + 4;
    if (chunk_bytes > std::numeric_limits<std::size_t>::max() / 2) return failure(errc::out_of_memory);
    const std::size_t held = block + std::max<std::size_t>(static_cast<std::size_t>(chunk_bytes), block);
    std::unique_ptr<buffers> room(new (std::nothrow) buffers);
    std::unique_ptr<std::byte[]> coded(new (std::nothrow) std::byte[held]);
    if (room == nullptr || coded == nullptr) return failure(errc::out_of_memory);
    return applied_difference(model, coder, std::move(room), std::move(coded), held);
  }

  /// How far it is applied.
  difference_state state() const noexcept { return state_; }
  /// XXH3-64 of the new version's tensors, once the first bytes have arrived; 0 before.
  std::uint64_t to_digest() const noexcept { return prologue_.to; }

  static std::uint64_t fingerprint() noexcept { return 0; }  // of the difference; that of the model is in it
  static const image_schema* schema() noexcept { return nullptr; }
  result<void> begin(const description& d) noexcept {
    const image_schema& s = *to_.schema;
    if (d.image_bytes - d.data_start < difference_prologue::bytes || d.image_bytes - d.data_start > longest(s))
      return failure(errc::bad_frame);
    if (d.data_start > most_header_bytes) return failure(errc::too_large, d.data_start);
    if (state_ != difference_state::untouched && !failed_ && d.verifiable && d.version == version_ &&
        d.image_bytes == end_ && d.data_start == begin_) {
      if (const auto there = go_on(); !there) return there;
    } else {
      begin_anew(d);
    }
    return land_.begin({.fingerprint = s.fingerprint, .image_bytes = s.image_bytes, .data_start = s.header_bytes});
  }
  prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    if (length == 0 || out.empty()) return {};
    // earlier bytes were taken: the header, or those that arrive again after a lost connection
    if (offset < taken_) return detail::prepare_in(room_->passing, std::min(length, taken_ - offset), out);
    keep_the_rest();
    return detail::prepare_in({coded_.get() + have_, static_cast<std::size_t>(held_ - have_)}, length, out);
  }
  result<void> commit(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    if (offset < taken_) return {};
    taken_ += bytes.size();
    have_ += bytes.size();
    return have_ < held_ ? result<void>{} : work();
  }
  result<void> chunk(std::uint64_t, std::uint64_t) noexcept { return work(); }
  /// Forgets what was not applied. Bytes that were applied are skipped when they arrive again.
  void rewind(std::uint64_t offset) noexcept {
    const std::uint64_t back = std::max(offset, begin_);
    if (back >= taken_ || taken_ - back > have_ - worked_) return;
    have_ -= static_cast<std::size_t>(taken_ - back);
    taken_ = back;
  }
  result<void> finish(const receipt&) noexcept {
    if (tensor_ != to_.schema->tensor_count || have_ != worked_) return failure(errc::bad_frame, taken_);
    if (hash_.digest() != prologue_.to) return failure(errc::digest_mismatch);
    if (const auto good = check_booleans(to_); !good) return good;
    to_.complete();
    state_ = difference_state::applied;
    return {};
  }
  void abandon(const error&) noexcept {
    if (state_ == difference_state::partly) mend_booleans(to_, to_.schema->data_bytes());
  }

 private:
  static constexpr std::uint64_t most_header_bytes = 64 * 1024;
  struct buffers {
    std::byte block[difference_block_bytes];
    std::byte scratch[difference_block_bytes];
    std::byte passing[4096];
  };

  applied_difference(const destination_view& model, Coder& coder, std::unique_ptr<buffers> room,
                     std::unique_ptr<std::byte[]> coded, std::size_t held) noexcept
      : to_(model), land_(model), coder_(&coder), room_(std::move(room)), coded_(std::move(coded)), held_(held) {}

  /// Bytes of the longest difference to such a model: a sender that has more is not waited for.
  static std::uint64_t longest(const image_schema& s) noexcept {
    std::uint64_t all = difference_prologue::bytes;
    for (const tensor_entry& t : s.entries()) {
      const std::uint64_t size = t.size_bytes(), rest = size % difference_block_bytes;
      all += size / difference_block_bytes * (4 + coded_block_bound(difference_block_bytes));
      if (rest != 0) all += 4 + coded_block_bound(static_cast<std::size_t>(rest));
    }
    return all;
  }
  void begin_anew(const description& d) noexcept {
    version_ = d.version;
    end_ = d.image_bytes;
    taken_ = begin_ = d.data_start;
    have_ = worked_ = tensor_ = 0;
    within_ = 0;
    hash_ = {};
    begun_ = failed_ = false;
    if (state_ == difference_state::applied) state_ = difference_state::untouched;
  }
  /// Drops what has arrived and was not applied, and compares the rest with what is in memory.
  result<void> go_on() noexcept {
    taken_ -= have_ - worked_;
    have_ = worked_;
    const image_schema& s = *to_.schema;
    const std::uint64_t done = tensor_ < s.tensor_count ? s.tensors[tensor_].begin + within_ : s.data_bytes();
    const auto is = range_digest<Hash>(to_, s.header_bytes, done);
    if (!is) return failure(is.error());
    return *is == hash_.digest() ? result<void>{} : result<void>(failure(errc::digest_mismatch));
  }
  /// Moves the incomplete block to the beginning of the buffer: not before more is wanted, since the transport may hash
  /// the bytes in place after commit().
  void keep_the_rest() noexcept {
    have_ -= worked_;
    std::memmove(coded_.get(), coded_.get() + worked_, have_);
    worked_ = 0;
  }
  /// Applies all complete blocks.
  result<void> work() noexcept {
    const auto ok = apply_blocks();
    if (!ok) failed_ = true;
    return ok;
  }
  result<void> apply_blocks() noexcept {
    if (failed_) return failure(errc::bad_frame, taken_);
    std::size_t& at = worked_;
    if (!begun_) {
      if (have_ < difference_prologue::bytes) return {};
      if (const auto ok = open(); !ok) return ok;
      at = difference_prologue::bytes;
      begun_ = true;
    }
    for (skip_empty(); tensor_ < to_.schema->tensor_count; skip_empty()) {
      const tensor_entry& t = to_.schema->tensors[tensor_];
      const auto n = static_cast<std::size_t>(
          std::min<std::uint64_t>(difference_block_bytes, t.end - t.begin - within_));
      if (have_ - at < 4) break;
      const std::uint64_t coded = load_le32(coded_.get() + at);
      if (coded > coded_block_bound(n)) return failure(errc::bad_frame, taken_, t.name);
      if (have_ - at - 4 < coded) break;
      if (const auto ok = apply(t, std::span(coded_.get() + at + 4, static_cast<std::size_t>(coded)), n); !ok)
        return ok;
      at += 4 + static_cast<std::size_t>(coded);
      within_ += n;
    }
    if (tensor_ == to_.schema->tensor_count && (have_ != at || taken_ != end_)) return failure(errc::bad_frame, taken_);
    return {};
  }
  void skip_empty() noexcept {
    for (; tensor_ < to_.schema->tensor_count; ++tensor_, within_ = 0)
      if (within_ < to_.schema->tensors[tensor_].size_bytes()) return;
  }
  result<void> open() noexcept {
    const auto read = difference_prologue::read(
        std::span<const std::byte, difference_prologue::bytes>(coded_.get(), difference_prologue::bytes));
    if (!read) return failure(read.error());
    const image_schema& s = *to_.schema;
    if (read->fingerprint != s.fingerprint || read->data_bytes != s.data_bytes()) return failure(errc::schema_mismatch);
    if (read->block_bytes != difference_block_bytes || (read->coder != Coder::id && read->coder != no_coder::id))
      return failure(errc::unsupported_layout);
    prologue_ = *read;
    return {};
  }
  result<void> apply(const tensor_entry& t, std::span<const std::byte> coded, std::size_t n) noexcept {
    const std::uint64_t at = to_.schema->header_bytes + t.begin + within_;
    const bool here = t.in_place();
    const std::span block(here ? to_.address(tensor_) + within_ : room_->block, n);
    if (!here)
      if (const auto read = detail::read_range(to_, at, block); !read) return read;
    // few elements lie too far from each other for a processor to fetch them ahead; all are hashed next anyway
    if (here && coded.size() * 64 < n)
      for (std::size_t line = 0; line < n; line += 64) __builtin_prefetch(block.data() + line);
    if (const auto ok = apply_block(*coder_, t.type, block, coded, std::span(room_->scratch, n)); !ok)
      return failure(ok.error().code, taken_, t.name);
    hash_.update(block);
    if (here && detail::all_zero(coded)) return {};  // others may be written elsewhere than they are read
    state_ = difference_state::partly;
    return here ? result<void>{} : detail::land_bytes(land_, at, block);
  }

  destination_view to_;
  land land_;
  Coder* coder_;
  std::unique_ptr<buffers> room_;
  std::unique_ptr<std::byte[]> coded_;  ///< arrived and not applied: have_ of held_ bytes, up to taken_
  std::size_t held_;
  difference_prologue prologue_{};
  Hash hash_{};
  std::uint64_t version_ = 0, begin_ = 0, end_ = 0, taken_ = 0, within_ = 0;
  std::size_t have_ = 0, worked_ = 0, tensor_ = 0;
  difference_state state_ = difference_state::untouched;
  bool begun_ = false, failed_ = false;
};
static_assert(consumer<applied_difference<no_coder>>);

}  // namespace tensorpull
