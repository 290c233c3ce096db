// Where each chunk of a recipient ends: its strategy cuts, and the owner's cap, the wanted ranges and their runs bound
// what it cuts.
#pragma once

#include <tensorpull/chunking/concept.hpp>
#include <tensorpull/core/limits.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/protocol/recipient/detail/wanted_ranges.hpp>
#include <tensorpull/protocol/recipient/pull_request.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <cstdint>

namespace tensorpull::detail {

/// Cuts the wanted bytes of an image.
template <chunking_strategy Chunking, class Limits>
class chunker {
 public:
  /// The bytes that are wanted.
  wanted_ranges<Limits::slices> wanted{};

  explicit chunker(Chunking strategy) noexcept : strategy_(strategy) {}

  const Chunking& strategy() const noexcept { return strategy_; }
  /// Tells a strategy that adapts how the transfer gets on.
  void measured(const chunk_progress& p) noexcept
    requires adapts<Chunking>
  {
    strategy_.measured(p);
  }

  /// The owner describes the image, and serves chunks of `cap` bytes at most. False: it describes another one `again`.
  bool describe(const chunk_context& image, std::uint64_t cap, bool again) noexcept {
    if (again && !is_of(image)) return false;
    image_ = image;
    cap_ = owners_cap_ = static_cast<std::uint32_t>(std::min(cap, max_payload_bytes));
    return true;
  }
  /// As described; before that there are no bytes.
  const chunk_context& image() const noexcept { return image_; }
  /// Whether an image may have the bytes that were described.
  bool is_of(const chunk_context& image) const noexcept {
    return image.image_bytes == image_.image_bytes && image.data_start == image_.data_start;
  }
  /// All of the image is wanted. does_not_fit: it is too long for the one chunk that the strategy wants.
  result<void> want_all(const pull_request& r) noexcept {
    if constexpr (Chunking::max_chunk_bytes == 0) {
      if (r.chunk_digest == digest_kind::none && owners_cap_ >= usual_chunk_cap_bytes) cap_ = max_payload_bytes;
      if (image_.image_bytes > cap_) return failure(errc::does_not_fit, image_.image_bytes);
    }
    wanted.all(image_.image_bytes);
    return {};
  }

  /// The longest chunk that the owner serves.
  std::uint64_t owners_cap() const noexcept { return owners_cap_; }
  /// Whether an owner serves so long a chunk only if it knows all_in_one_chunk.
  bool is_all_in_one(std::uint64_t length) const noexcept {
    return Chunking::max_chunk_bytes == 0 && length > owners_cap_;
  }
  /// No chunk is longer than this.
  std::uint64_t cap() const noexcept { return cap_; }
  /// No later chunk is longer than `most`.
  void cut_at(std::uint64_t most) noexcept {
    cap_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(owners_cap_, most));
  }

  /// The length of the first chunk, ahead of a description. If there was none yet, nothing is known of the image: the
  /// owner ends that chunk where the image ends.
  std::uint64_t ahead(const wanted_position& p) noexcept {
    if (image_.image_bytes == 0) unseen_ = p.offset;
    return strategy_.next(p.offset, seen_at(p));
  }
  /// Nobody waits for that chunk any more.
  void start_over() noexcept { unseen_ = ~std::uint64_t{0}; }
  /// The length of the chunk that begins there.
  std::uint64_t length(const wanted_position& p, const pull_request& r) const noexcept {
    const std::uint64_t most = std::min<std::uint64_t>(wanted.left(p), cap_);
    if constexpr (Chunking::needs_layout)
      if (r.by_name())  // the schema is that of the named tensors, one behind the other
        return within_runs(
            p, std::min(strategy_.next(*wanted.position_of(p.offset), {wanted.total(), 0, r.schema}), most), r);
    return within_runs(p, std::min(strategy_.next(p.offset, seen_at(p)), most), r);
  }
  /// As much of `length` as one request may ask for. A chunk is of whole runs, or lies within one: then the owner need
  /// not know where that begins.
  std::uint64_t within_runs(const wanted_position& p, std::uint64_t length, const pull_request& r) const noexcept {
    if constexpr (Limits::slices)
      if (const byte_runs runs = wanted.runs(p); runs.apart()) {
        const std::uint64_t left = wanted.left_in_run(p);
        if (left < runs.length || length < 2 * std::uint64_t{runs.length} ||
            r.chunk_digest != digest_kind::none)  // of bytes that lie apart none is computed
          return std::min(length, left);
        return length - length % runs.length;
      }
    return length;
  }

 private:
  /// The view of a strategy that cuts there.
  chunk_context seen_at(const wanted_position& p) const noexcept {
    return p.offset == unseen_ ? chunk_context{.image_bytes = ~std::uint64_t{0}} : image_;
  }

  [[no_unique_address]] Chunking strategy_;
  chunk_context image_{};
  std::uint64_t unseen_ = ~std::uint64_t{0};  // where the chunk begins that was cut before anything was known
  std::uint32_t cap_ = max_payload_bytes, owners_cap_ = max_payload_bytes;
};

}  // namespace tensorpull::detail
