// Packs any byte range of a strided tensor. Decides how: runs of the innermost contiguous block, found by one division
// chain a call.
#pragma once

#include <tensorpull/image/schema.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tensorpull::detail {

/// Walks a strided tensor as a sequence of equal contiguous blocks in C order. Requires rank <= max_strided_rank,
/// whole-byte elements, and at least one element. Lives on the stack: about 1.6 KiB.
class strided_reader {
 public:
  strided_reader(const tensor_entry& entry, const std::byte* origin) noexcept
      : at_(origin), block_(bits(entry.type) / 8) {
    std::size_t i = entry.rank;
    for (; i > 0; --i) {
      const std::uint64_t extent = entry.shape[i - 1];
      if (extent == 1) continue;
      if (entry.strides_bytes[i - 1] < 0 || static_cast<std::uint64_t>(entry.strides_bytes[i - 1]) != block_) break;
      block_ *= extent;
    }
    // The remaining dimensions are walked by counting, innermost dimension first; a dimension that continues the one
    // inside it is joined to it.
    for (; i > 0; --i) {
      const std::uint64_t extent = entry.shape[i - 1];
      const std::int64_t stride = entry.strides_bytes[i - 1];
      if (extent == 1) continue;
      if (rank_ != 0 && stride == strides_[rank_ - 1] * static_cast<std::int64_t>(extents_[rank_ - 1])) {
        extents_[rank_ - 1] *= extent;
      } else {
        extents_[rank_] = extent;
        strides_[rank_++] = stride;
      }
    }
  }

  /// Writes the tensor's bytes [offset, offset + out.size()), which must exist.
  void read(std::uint64_t offset, std::span<std::byte> out) noexcept {
    seek(offset / block_);
    std::uint64_t within = offset % block_;
    std::byte* to = out.data();
    for (std::size_t left = out.size(); left > 0;) {
      if (within == 0 && left >= block_ && rank_ != 0) {
        const std::uint64_t run = smaller(left / block_, extents_[0] - index_[0]);
        copy_run(to, run);
        to += run * block_;
        left -= static_cast<std::size_t>(run * block_);
        advance(run);
        continue;
      }
      const auto n = smaller(left, block_ - within);
      std::memcpy(to, at_ + within, n);
      to += n;
      left -= n;
      within = 0;
      advance(1);
    }
  }

 private:
  void seek(std::uint64_t block) noexcept {
    for (std::size_t d = 0; d < rank_; ++d) {
      index_[d] = block % extents_[d];
      block /= extents_[d];
      at_ += static_cast<std::ptrdiff_t>(strides_[d] * static_cast<std::int64_t>(index_[d]));
    }
  }

  /// n blocks further, at most to the end of the innermost dimension.
  void advance(std::uint64_t n) noexcept {
    if (rank_ == 0) return;
    index_[0] += n;
    at_ += static_cast<std::ptrdiff_t>(strides_[0] * static_cast<std::int64_t>(n));
    for (std::size_t d = 0; index_[d] == extents_[d]; ++d) {
      at_ -= static_cast<std::ptrdiff_t>(strides_[d] * static_cast<std::int64_t>(extents_[d]));
      index_[d] = 0;
      if (d + 1 == rank_) return;
      ++index_[d + 1];
      at_ += static_cast<std::ptrdiff_t>(strides_[d + 1]);
    }
  }

  // Blocks of one element are the common case (a transposed matrix): a copy of constant size, not a call for each.
  template <std::size_t Bytes>
  void copy_elements(std::byte* to, std::uint64_t n) const noexcept {
    const std::byte* from = at_;
    for (std::uint64_t i = 0;;) {
      std::memcpy(to, from, Bytes);
      if (++i == n) return;
      to += Bytes;
      from += static_cast<std::ptrdiff_t>(strides_[0]);
    }
  }
  void copy_run(std::byte* to, std::uint64_t n) const noexcept {
    switch (block_) {
      case 1: return copy_elements<1>(to, n);
      case 2: return copy_elements<2>(to, n);
      case 4: return copy_elements<4>(to, n);
      case 8: return copy_elements<8>(to, n);
      default: break;
    }
    const std::byte* from = at_;
    for (std::uint64_t i = 0;;) {
      std::memcpy(to, from, static_cast<std::size_t>(block_));
      if (++i == n) return;
      to += block_;
      from += static_cast<std::ptrdiff_t>(strides_[0]);
    }
  }

  const std::byte* at_;
  std::uint64_t block_;
  std::size_t rank_ = 0;
  std::uint64_t extents_[max_strided_rank], index_[max_strided_rank];
  std::int64_t strides_[max_strided_rank];
};

}  // namespace tensorpull::detail
