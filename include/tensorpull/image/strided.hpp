// Packs and unpacks any byte range of a strided tensor. Decides how: runs of the innermost contiguous block, found by
// one division chain a call.
#pragma once

#include <tensorpull/image/schema.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace tensorpull::detail {

/// Walks a strided tensor as a sequence of equal contiguous blocks in C order. Requires rank <= max_strided_rank,
/// whole-byte elements, and at least one element. Lives on the stack: about 1.6 KiB. For one call of read() or write().
/// `Byte`: constant, if it is only read.
template <class Byte>
class strided_bytes {
 public:
  strided_bytes(std::uint64_t element_bytes, std::span<const std::uint64_t> shape, const std::int64_t* strides,
                Byte* origin) noexcept
      : at_(origin), block_(element_bytes) {
    std::size_t i = shape.size();
    for (; i > 0; --i) {
      const std::uint64_t extent = shape[i - 1];
      if (extent == 1) continue;
      if (strides[i - 1] < 0 || static_cast<std::uint64_t>(strides[i - 1]) != block_) break;
      block_ *= extent;
    }
    // The remaining dimensions are walked by counting, innermost dimension first; a dimension that continues the one
    // inside it is joined to it.
    for (; i > 0; --i) {
      const std::uint64_t extent = shape[i - 1];
      const std::int64_t stride = strides[i - 1];
      if (extent == 1) continue;
      if (rank_ != 0 && stride == strides_[rank_ - 1] * static_cast<std::int64_t>(extents_[rank_ - 1])) {
        extents_[rank_ - 1] *= extent;
      } else {
        extents_[rank_] = extent;
        strides_[rank_++] = stride;
      }
    }
  }

  /// Writes the tensor's bytes [offset, offset + out.size()), which must exist, to `out`.
  void read(std::uint64_t offset, std::span<std::byte> out) noexcept { walk(offset, out.data(), out.size()); }
  /// Takes them from `in`.
  void write(std::uint64_t offset, std::span<const std::byte> in) noexcept { walk(offset, in.data(), in.size()); }

 private:
  /// `other`: constant, if bytes go from there to the tensor.
  template <class Other>
  void walk(std::uint64_t offset, Other* other, std::size_t left) noexcept {
    seek(offset / block_);
    std::uint64_t within = offset % block_;
    while (left > 0) {
      if (within == 0 && left >= block_ && rank_ != 0) {
        const std::uint64_t run = smaller(left / block_, extents_[0] - index_[0]);
        copy_run(other, run);
        other += run * block_;
        left -= static_cast<std::size_t>(run * block_);
        advance(run);
        continue;
      }
      const auto n = smaller(left, block_ - within);
      copy(at_ + within, other, n);
      other += n;
      left -= n;
      within = 0;
      advance(1);
    }
  }
  template <class Other>
  static void copy(Byte* at, Other* other, std::size_t n) noexcept {
    if constexpr (std::is_const_v<Other>) std::memcpy(at, other, n);
    else std::memcpy(other, at, n);
  }
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
  template <std::size_t Bytes, class Other>
  void copy_elements(Other* other, std::uint64_t n) const noexcept {
    Byte* at = at_;
    for (std::uint64_t i = 0;;) {
      copy(at, other, Bytes);
      if (++i == n) return;
      other += Bytes;
      at += static_cast<std::ptrdiff_t>(strides_[0]);
    }
  }
  template <class Other>
  void copy_run(Other* other, std::uint64_t n) const noexcept {
    switch (block_) {
      case 1: return copy_elements<1>(other, n);
      case 2: return copy_elements<2>(other, n);
      case 4: return copy_elements<4>(other, n);
      case 8: return copy_elements<8>(other, n);
      default: break;
    }
    Byte* at = at_;
    for (std::uint64_t i = 0;;) {
      copy(at, other, static_cast<std::size_t>(block_));
      if (++i == n) return;
      other += block_;
      at += static_cast<std::ptrdiff_t>(strides_[0]);
    }
  }

  Byte* at_;
  std::uint64_t block_;
  std::size_t rank_ = 0;
  std::uint64_t extents_[max_strided_rank], index_[max_strided_rank];
  std::int64_t strides_[max_strided_rank];
};

}  // namespace tensorpull::detail
