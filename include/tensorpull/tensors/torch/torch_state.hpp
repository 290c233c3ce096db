// A state dict that a transfer makes: the consumer for recipients that have no module yet.
#pragma once

#include <tensorpull/consumers/any_schema/new_model.hpp>
#include <tensorpull/tensors/make_model.hpp>
#include <tensorpull/tensors/torch/detail/torch_dtype.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tensorpull {

/// Makes torch's tensors in the CPU's memory; they are not initialised.
class torch_allocator {
 public:
  /// A tensor of that dtype and shape. Errors, with its name: unsupported_dtype, size_overflow, out_of_memory.
  result<std::byte*> allocate(const tensor_entry& entry) noexcept {
    const auto type = to_torch(entry.type);
    if (!type || (entry.type == dtype::f4 && (entry.rank == 0 || entry.shape[entry.rank - 1u] % 2 != 0)))
      return failure(errc::unsupported_dtype, 0, entry.name);
    try {
      std::vector<std::int64_t> shape(entry.shape, entry.shape + entry.rank);
      for (const std::int64_t extent : shape)
        if (extent < 0) return failure(errc::size_overflow, 0, entry.name);
      if (entry.type == dtype::f4) shape.back() /= 2;
      tensors.push_back(at::empty(shape, at::TensorOptions().dtype(*type)));
      auto* const memory = static_cast<std::byte*>(tensors.back().data_ptr());
      detail::advise_huge_pages(memory, tensors.back().nbytes());
      return memory;
    } catch (...) {
      return failure(errc::out_of_memory, 0, entry.name);
    }
  }
  /// Releases all tensors.
  void clear() noexcept { tensors.clear(); }

  std::vector<at::Tensor> tensors;  ///< in image order
};

/// The consumer. Limits say what an owner may make it allocate.
class new_state_dict : public new_model<torch_allocator> {
 public:
  /// Allocates nothing before the header has arrived.
  explicit new_state_dict(const new_model_limits& limits) noexcept : new_model({}, limits) {}

  /// After the transfer: the tensors under their names, tied ones under each of theirs. A pair of the metadata is a tie
  /// if its value is the name of a tensor and its key is none ("format", which savers put there, is none either).
  /// out_of_memory is the only error.
  result<std::map<std::string, at::Tensor>> state() const noexcept {
    try {
      std::map<std::string, at::Tensor> named;
      const auto& tensors = const_cast<new_state_dict*>(this)->allocator().tensors;
      for (std::size_t i = 0; i < tensors.size(); ++i) named.emplace(made().tensors[i].name, tensors[i]);
      std::vector<std::pair<std::string, at::Tensor>> ties;
      for (const metadata_entry& pair : made().pairs()) {
        const auto kept = named.find(std::string(pair.value));
        if (kept != named.end() && pair.key != "format") ties.emplace_back(pair.key, kept->second);
      }
      for (auto& tie : ties) named.insert(std::move(tie));
      return named;
    } catch (...) {
      return failure(errc::out_of_memory);
    }
  }
};

}  // namespace tensorpull
