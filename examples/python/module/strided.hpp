// Unpacks byte ranges of an image into a tensor with strides, and packs them again, to compare what has landed.
#pragma once

#include <tensorpull/image/schema.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace tensorpull::python {

/// Walks a tensor's elements in C order, one block after the other; a block is what lies together. Requires rank <=
/// max_strided_rank and at least one element.
class strided_bytes {
 public:
  strided_bytes(std::byte* origin, std::uint64_t item_bytes, std::span<const std::uint64_t> shape,
                std::span<const std::int64_t> strides_bytes) noexcept
      : origin_(origin), block_(item_bytes) {
    bool together = true;
    for (std::size_t d = shape.size(); d-- > 0;) {
      if (shape[d] == 1) continue;
      together = together && strides_bytes[d] == static_cast<std::int64_t>(block_);
      if (together) {
        block_ *= shape[d];
      } else {
        extents_[rank_] = shape[d];
        strides_[rank_++] = strides_bytes[d];
      }
    }
  }

  /// Takes the tensor's bytes [offset, offset + in.size()), which must exist.
  void write(std::uint64_t offset, std::span<const std::byte> in) const noexcept {
    const std::byte* from = in.data();
    const auto bytes = [&from](std::byte* at, std::size_t n) {
      std::memcpy(at, from, n);
      from += n;
    };
    const auto elements = [&from, this]<std::size_t Bytes>(std::byte* at, std::uint64_t n,
                                                           std::integral_constant<std::size_t, Bytes>) {
      for (std::uint64_t i = 0; i < n; ++i, from += Bytes) std::memcpy(element(at, i), from, Bytes);
    };
    walk(offset, in.size(), bytes, elements);
  }
  /// Gives them.
  void read(std::uint64_t offset, std::span<std::byte> out) const noexcept {
    std::byte* to = out.data();
    const auto bytes = [&to](const std::byte* at, std::size_t n) {
      std::memcpy(to, at, n);
      to += n;
    };
    const auto elements = [&to, this]<std::size_t Bytes>(std::byte* at, std::uint64_t n,
                                                         std::integral_constant<std::size_t, Bytes>) {
      for (std::uint64_t i = 0; i < n; ++i, to += Bytes) std::memcpy(to, element(at, i), Bytes);
    };
    walk(offset, out.size(), bytes, elements);
  }

 private:
  std::byte* element(std::byte* at, std::uint64_t i) const noexcept {
    return at + static_cast<std::ptrdiff_t>(i) * static_cast<std::ptrdiff_t>(strides_[0]);
  }

  /// `bytes(at, n)`: n bytes lie together. `elements(at, n, size)`: n elements of a constant size, strides_[0] apart:
  /// no call for each.
  template <class Bytes, class Elements>
  void walk(std::uint64_t offset, std::size_t left, const Bytes& bytes, const Elements& elements) const noexcept {
    std::uint64_t index[max_strided_rank];
    std::uint64_t block = offset / block_, within = offset % block_;
    std::byte* at = origin_;
    for (std::size_t d = 0; d < rank_; ++d) {
      index[d] = block % extents_[d];
      block /= extents_[d];
      at += static_cast<std::ptrdiff_t>(index[d]) * static_cast<std::ptrdiff_t>(strides_[d]);
    }
    while (left > 0) {
      std::uint64_t blocks = 1;
      if (within != 0 || left < block_ || rank_ == 0 ||
          !together(at, std::min<std::uint64_t>(left / block_, extents_[0] - index[0]), elements)) {
        const std::size_t n = std::min<std::size_t>(left, static_cast<std::size_t>(block_ - within));
        bytes(at + within, n);
        left -= n;
        within = 0;
      } else {
        blocks = std::min<std::uint64_t>(left / block_, extents_[0] - index[0]);
        left -= static_cast<std::size_t>(blocks * block_);
      }
      if (rank_ == 0 || left == 0) continue;
      index[0] += blocks;
      at += static_cast<std::ptrdiff_t>(blocks) * static_cast<std::ptrdiff_t>(strides_[0]);
      for (std::size_t d = 0; index[d] == extents_[d] && d + 1 < rank_; ++d) {
        at += static_cast<std::ptrdiff_t>(strides_[d + 1]) -
              static_cast<std::ptrdiff_t>(extents_[d]) * static_cast<std::ptrdiff_t>(strides_[d]);
        index[d] = 0;
        ++index[d + 1];
      }
    }
  }
  /// Whether the blocks are of a size for which `elements` is there; then it has had them.
  template <class Elements>
  bool together(std::byte* at, std::uint64_t n, const Elements& elements) const noexcept {
    switch (block_) {
      case 1: elements(at, n, std::integral_constant<std::size_t, 1>{}); return true;
      case 2: elements(at, n, std::integral_constant<std::size_t, 2>{}); return true;
      case 4: elements(at, n, std::integral_constant<std::size_t, 4>{}); return true;
      case 8: elements(at, n, std::integral_constant<std::size_t, 8>{}); return true;
      default: return false;
    }
  }

  std::byte* origin_;
  std::uint64_t block_;
  std::size_t rank_ = 0;
  std::uint64_t extents_[max_strided_rank] = {};
  std::int64_t strides_[max_strided_rank] = {};
};

}  // namespace tensorpull::python
