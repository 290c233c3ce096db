// The updates of one weighted average: what they share (the sums, the round, the first thing that spoils the result), and the two ways in
// which one is added: chunk by chunk as its chunks prove right, or as a whole, by way of the staging memory, when it has proved complete.
#pragma once

#include <tensorpull/consumers/average/chunk_buffers.hpp>
#include <tensorpull/consumers/average/detail/weighted_sums.hpp>
#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/consumers/receipt.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

namespace tensorpull::detail {

struct averaging {
  averaging(weighted_sums made, chunk_buffers* shared) noexcept : sums(std::move(made)), buffers(shared) {}

  weighted_sums sums;
  chunk_buffers* buffers = nullptr;      ///< null if updates are staged
  std::uint64_t round = 1;               ///< an update that began in another round adds nothing more
  std::size_t halfway = 0;               ///< updates that have added something and have not ended
  std::size_t whole = 0;
  std::size_t partial = 0;
  const void* staging_user = nullptr;
  std::optional<error> spoiled;          ///< the first reason why the sums are no average; it stays until reset()

  /// Whether an update of this weight and description may begin.
  result<void> check(double weight, const description& d, error_name peer) const noexcept {
    // as a float too: sums are float32 for most dtypes
    if (!std::isnormal(static_cast<float>(weight)) || weight < 0) return failure(errc::invalid_argument, 0, peer);
    const image_schema& schema = sums.schema();
    if (d.fingerprint != schema.fingerprint || d.data_start > d.image_bytes || d.image_bytes - d.data_start != schema.data_bytes())
      return failure(errc::schema_mismatch, 0, peer);
    return {};
  }

  void spoil(errc code, std::uint64_t at, error_name peer) noexcept {
    if (!spoiled) spoiled = error{code, 0, at, peer};
  }

  void reset() noexcept {
    sums.clear();
    ++round;
    halfway = whole = partial = 0;
    staging_user = nullptr;
    spoiled.reset();
  }

  result<void> finish() noexcept {
    if (spoiled) return failure(*spoiled);
    if (halfway > 0) return failure(errc::partial_update, halfway);
    return sums.write();
  }
};

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

/// The staging memory holds one model. An update that finds it taken waits until the other one ends.
class staged_update {
 public:
  static constexpr bool irrevocable = false;
  /// The header lands in the staging memory too, a piece at a time, and is overwritten.
  static constexpr std::size_t least_staging_bytes = 4096;

  staged_update(averaging& to, double weight, error_name peer) noexcept : to_(to), weight_(weight), peer_(peer) {}
  staged_update(const staged_update&) = delete;
  staged_update& operator=(const staged_update&) = delete;
  ~staged_update() { stop(); }

  std::uint64_t fingerprint() const noexcept { return to_.sums.schema().fingerprint; }
  const image_schema* schema() const noexcept { return &to_.sums.schema(); }

  result<void> begin(const description& d) noexcept {
    stop();
    if (const auto ok = to_.check(weight_, d, peer_); !ok) return ok;
    active_ = true;
    round_ = to_.round;
    data_start_ = d.data_start;
    return {};
  }

  prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    if (!active_ || length == 0 || out.empty()) return {};
    if (round_ == to_.round && to_.staging_user == nullptr) to_.staging_user = this;
    if (to_.staging_user != this) return {};
    const bool header = offset < data_start_;
    const std::uint64_t at = header ? 0 : offset - data_start_;
    const std::uint64_t room = header ? std::min<std::uint64_t>(data_start_ - offset, least_staging_bytes) : to_.sums.schema().data_bytes() - at;
    const auto n = static_cast<std::size_t>(std::min(length, room));
    out[0] = {to_.sums.staging() + static_cast<std::size_t>(at), n};
    return {1, n};
  }

  result<void> commit(std::uint64_t, std::span<const std::byte>) noexcept { return {}; }
  result<void> chunk(std::uint64_t offset, std::uint64_t) noexcept {
    if (!active_ || round_ != to_.round) return failure(errc::cancelled, offset, peer_);
    return {};
  }

  result<void> finish(const receipt&) noexcept {
    const auto n = static_cast<std::size_t>(to_.sums.schema().data_bytes());
    if (!active_ || round_ != to_.round || (n > 0 && to_.staging_user != this)) return failure(errc::cancelled, 0, peer_);
    to_.sums.add(0, {to_.sums.staging(), n}, weight_);
    to_.sums.reached().add_whole(weight_);
    ++to_.whole;
    stop();
    return {};
  }

  void rewind(std::uint64_t) noexcept {}
  void abandon(const error&) noexcept { stop(); }

 private:
  void stop() noexcept {
    active_ = false;
    if (to_.staging_user == this) to_.staging_user = nullptr;
  }

  averaging& to_;
  double weight_;
  error_name peer_;
  std::uint64_t data_start_ = 0, round_ = 0;
  bool active_ = false;
};

}  // namespace tensorpull::detail
