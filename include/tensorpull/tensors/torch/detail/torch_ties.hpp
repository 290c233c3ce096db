// Which torch tensors are one and the same memory. Decides what is sent once.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tensorpull {

/// A tensor and its name.
struct named_torch_tensor {
  std::string name;
  at::Tensor tensor;
};

namespace detail {

/// Where its first element is. Does not make torch copy a storage that it shares until somebody writes. A template,
/// since libtorch 1.13 lacks the function that tells this.
template <class Tensor>
const std::byte* torch_bytes(const Tensor& t) {
  if constexpr (requires { t.const_data_ptr(); }) return static_cast<const std::byte*>(t.const_data_ptr());
  else return static_cast<const std::byte*>(t.data_ptr());
}

/// The memory that a tensor sees, and how; equal for tensors that are tied.
inline auto torch_identity(const at::Tensor& t) {
  return std::tuple(t.device().type(), t.device().index(), reinterpret_cast<std::uintptr_t>(torch_bytes(t)),
                    t.scalar_type(), t.is_conj(), t.is_neg(), t.sizes().vec(), t.strides().vec());
}

/// kept[i]: the tensor that tensors[i] is tied to, itself if it is tied to none before it. `tensors` are sorted by
/// name.
inline std::vector<std::size_t> find_torch_ties(const std::vector<named_torch_tensor>& tensors) {
  std::vector<std::size_t> kept(tensors.size()), order;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    kept[i] = i;
    if (tensors[i].tensor.numel() != 0) order.push_back(i);
  }
  const auto at = [&](std::size_t i) { return reinterpret_cast<std::uintptr_t>(torch_bytes(tensors[i].tensor)); };
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return std::pair(at(a), a) < std::pair(at(b), b); });
  for (std::size_t first = 0; first < order.size();) {
    std::size_t last = first + 1;
    while (last < order.size() && at(order[last]) == at(order[first])) ++last;
    for (std::size_t i = first + 1; i < last; ++i)
      for (std::size_t k = first; k < i && kept[order[i]] == order[i]; ++k)
        if (kept[order[k]] == order[k] &&
            torch_identity(tensors[order[k]].tensor) == torch_identity(tensors[order[i]].tensor))
          kept[order[i]] = order[k];
    first = last;
  }
  return kept;
}

}  // namespace detail
}  // namespace tensorpull
