// One update on its way into a weighted average: a chunk is added when it is complete and checked, then forgotten.
#pragma once

#include <tensorpull/consumers/average/detail/averaging.hpp>
#include <tensorpull/consumers/concept.hpp>

#include <algorithm>
#include <array>
#include <cstring>

namespace tensorpull::detail {

/// Holds a chunk buffer while a chunk arrives, and at most 7 bytes of an element between chunks. About 170 bytes.
template <bool PartialIsError>
class streamed_update {
 public:
  static constexpr bool irrevocable = true;

  streamed_update(averaging& to, double weight, error_name peer) noexcept : to_(to), weight_(weight), peer_(peer) {}
  streamed_update(const streamed_update&) = delete;
  streamed_update& operator=(const streamed_update&) = delete;
  ~streamed_update() { stop(errc::cancelled); }

  std::uint64_t fingerprint() const noexcept { return to_.sums.schema().fingerprint; }
  const image_schema* schema() const noexcept { return &to_.sums.schema(); }

  result<void> begin(const description& d) noexcept {
    stop(errc::cancelled);
    if (const auto ok = to_.check(weight_, d, peer_); !ok) return ok;
    active_ = true;
    round_ = to_.round;
    data_start_ = d.data_start;
    added_ = carried_ = 0;
    return {};
  }

  prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    if (!active_ || length == 0 || out.empty()) return {};
    if (!lease_) lease_ = to_.buffers->acquire();
    if (!lease_) return {};
    const std::size_t capacity = to_.buffers->chunk_bytes();
    // the header is not kept: the chunk's data overwrites it
    std::size_t at = 0;
    std::uint64_t room = capacity;
    if (offset < data_start_) {
      room = std::min<std::uint64_t>(room, data_start_ - offset);
    } else if (const std::uint64_t filled = offset - data_start_ - chunk_begin(); filled < capacity) {
      at = static_cast<std::size_t>(filled);
      room = capacity - filled;
    } else {
      room = 1;  // a chunk longer than a buffer: commit() says so, which this call cannot
    }
    const auto n = static_cast<std::size_t>(std::min(length, room));
    out[0] = {lease_.data() + at, n};
    return {1, n};
  }

  result<void> commit(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    const std::uint64_t end = offset + bytes.size();
    if (end > data_start_ && end - data_start_ - chunk_begin() > to_.buffers->chunk_bytes())
      return failure(errc::does_not_fit, to_.buffers->chunk_bytes(), peer_);
    return {};
  }

  result<void> chunk(std::uint64_t offset, std::uint64_t length) noexcept {
    if (!active_ || round_ != to_.round) return failure(errc::cancelled, added_, peer_);
    const std::uint64_t end = offset + length;
    if (end > data_start_ && end - data_start_ > chunk_begin()) {
      const std::uint64_t n = end - data_start_ - chunk_begin();
      if (!lease_ || n > to_.buffers->chunk_bytes()) return failure(errc::invalid_argument, offset, peer_);
      add(static_cast<std::size_t>(n));
    }
    lease_ = {};
    return {};
  }

  result<void> finish(const receipt&) noexcept {
    if (!active_ || round_ != to_.round || added_ != to_.sums.schema().data_bytes()) return failure(errc::cancelled, added_, peer_);
    active_ = false;
    lease_ = {};
    if (added_ > 0) --to_.halfway;
    ++to_.whole;
    to_.sums.reached().add_whole(weight_);
    return {};
  }

  void rewind(std::uint64_t) noexcept { lease_ = {}; }
  void abandon(const error& e) noexcept { stop(e.code); }

  /// Bytes of the data section that are in the sums.
  std::uint64_t added_bytes() const noexcept { return added_; }

 private:
  /// Where the current chunk's data begins in the data section.
  std::uint64_t chunk_begin() const noexcept { return added_ + carried_; }

  /// n bytes of the chunk are in the buffer; the margin in front of it takes what the chunk before left over.
  void add(std::size_t n) noexcept {
    std::byte* const first = lease_.data() - carried_;
    std::memcpy(first, carry_.data(), carried_);
    const std::size_t all = carried_ + n, done = to_.sums.add(added_, {first, all}, weight_);
    if (added_ == 0 && done > 0) ++to_.halfway;
    added_ += done;
    carried_ = std::min(all - done, carry_.size());
    std::memcpy(carry_.data(), first + done, carried_);
  }

  void stop(errc why) noexcept {
    if (!active_) return;
    active_ = false;
    lease_ = {};
    if (round_ != to_.round || added_ == 0) return;
    --to_.halfway;
    ++to_.partial;
    // each chunk was what the owner sent, but together they are not what it published: there is no telling which one is wrong
    if (why == errc::digest_mismatch) to_.spoil(errc::digest_mismatch, added_, peer_);
    else if (PartialIsError) to_.spoil(errc::partial_update, added_, peer_);
    else if (!to_.sums.reached().add_partial(added_, weight_)) to_.spoil(errc::too_many_partial_updates, added_, peer_);
  }

  averaging& to_;
  double weight_;
  error_name peer_;
  chunk_buffers::lease lease_;
  std::array<std::byte, 8> carry_{};
  std::size_t carried_ = 0;
  std::uint64_t added_ = 0, data_start_ = 0, round_ = 0;
  bool active_ = false;
};

}  // namespace tensorpull::detail
