// Reads and writes a part of a torch tensor whose bytes are not simply in memory: on another device, in another order
// than C's, or (to read) conjugated or negated lazily.
#pragma once

#include <tensorpull/image/view.hpp>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tensorpull::detail {

/// Whether torch has to be asked for the bytes.
inline bool needs_torch_reader(const at::Tensor& t) { return !t.device().is_cpu() || t.is_conj() || t.is_neg(); }

/// Elements that torch copies in one call: few enough for it not to start threads (it does from 32,768 elements on).
inline constexpr std::int64_t torch_copy_elements = 16384;

/// From a tensor to memory in C order.
struct torch_to_memory {
  static void copy(const at::Tensor& from, std::byte* to) {
    at::from_blob(to, from.sizes(), at::TensorOptions().dtype(from.scalar_type())).copy_(from);
  }
};
/// And back.
struct memory_to_torch {
  static void copy(const at::Tensor& to, std::byte* from) {
    to.copy_(at::from_blob(from, to.sizes(), at::TensorOptions().dtype(to.scalar_type())));
  }
};

/// Copies `count` elements from the one with index `first` in C order on. Views of torch's own: no copy of more than is
/// asked for.
template <class Way>
void copy_torch_elements(at::Tensor from, std::int64_t first, std::int64_t count, std::byte* to) {
  const auto item = static_cast<std::int64_t>(from.element_size());
  while (from.dim() > 0) {
    const std::int64_t inner = from.numel() / from.size(0);
    std::int64_t row = first / inner, within = first % inner;
    if (within + count <= inner) {
      from = from.select(0, row);
      first = within;
      continue;
    }
    if (within != 0) {
      copy_torch_elements<Way>(from.select(0, row++), within, inner - within, to);
      to += (inner - within) * item;
      count -= inner - within;
    }
    if (const std::int64_t rows = count / inner; rows > 0) {
      Way::copy(from.narrow(0, row, rows), to);
      row += rows;
      to += rows * inner * item;
      count -= rows * inner;
    }
    if (count > 0) copy_torch_elements<Way>(from.select(0, row), 0, count, to);
    return;
  }
  Way::copy(from, to);
}

/// A source_reader's function; the token is the address of an at::Tensor. Torch allocates a few views for each call,
/// and keeps none.
inline result<void> read_torch(const void*, std::uintptr_t token, std::uint64_t offset,
                               std::span<std::byte> out) noexcept {
  try {
    const at::NoGradGuard no_grad;
    const at::Tensor& tensor = *reinterpret_cast<const at::Tensor*>(token);
    const auto item = static_cast<std::size_t>(tensor.element_size());
    alignas(16) std::byte aligned[4096];
    while (!out.empty()) {
      const auto first = static_cast<std::int64_t>(offset / item);
      const auto skip = static_cast<std::size_t>(offset % item);
      std::size_t n;
      if (skip == 0 && out.size() >= item && reinterpret_cast<std::uintptr_t>(out.data()) % item == 0) {
        const auto count = std::min(static_cast<std::int64_t>(out.size() / item), torch_copy_elements);
        copy_torch_elements<torch_to_memory>(tensor, first, count, out.data());
        n = static_cast<std::size_t>(count) * item;
      } else {
        const std::size_t elements = std::min((skip + out.size() + item - 1) / item, sizeof aligned / item);
        copy_torch_elements<torch_to_memory>(tensor, first, static_cast<std::int64_t>(elements), aligned);
        n = std::min(out.size(), elements * item - skip);
        std::memcpy(out.data(), aligned + skip, n);
      }
      offset += n;
      out = out.subspan(n);
    }
    return {};
  } catch (...) {  // a device that is gone, no memory
    return failure(errc::io, offset);
  }
}
inline constexpr source_reader torch_source_reader{&read_torch, nullptr};

/// A destination_writer's function for the same tokens. Elements of which only a part has arrived keep the rest. It
/// writes below autograd: the landing has told it already.
inline result<void> write_torch(void*, std::uintptr_t token, std::uint64_t offset,
                                std::span<const std::byte> bytes) noexcept {
  try {
    const at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor& tensor = *reinterpret_cast<const at::Tensor*>(token);
    const auto item = static_cast<std::size_t>(tensor.element_size());
    alignas(16) std::byte block[4096];
    while (!bytes.empty()) {
      const auto first = static_cast<std::int64_t>(offset / item);
      const auto skip = static_cast<std::size_t>(offset % item);
      const std::size_t elements = std::min((skip + bytes.size() + item - 1) / item, sizeof block / item);
      const std::size_t n = std::min(bytes.size(), elements * item - skip);
      const auto last = first + static_cast<std::int64_t>(elements) - 1;
      if (skip != 0) copy_torch_elements<torch_to_memory>(tensor, first, 1, block);
      if ((skip + n) % item != 0 && (skip == 0 || elements != 1))
        copy_torch_elements<torch_to_memory>(tensor, last, 1, block + (elements - 1) * item);
      std::memcpy(block + skip, bytes.data(), n);
      copy_torch_elements<memory_to_torch>(tensor, first, static_cast<std::int64_t>(elements), block);
      offset += n;
      bytes = bytes.subspan(n);
    }
    return {};
  } catch (...) {  // a device that is gone, no memory
    return failure(errc::io, offset);
  }
}

}  // namespace tensorpull::detail
