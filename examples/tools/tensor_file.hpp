// A file of tensors in any supported format. Its first bytes decide which format it is, because a name may be wrong.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/image/view.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tools {

namespace tp = tensorpull;

struct tensor_file {
  std::string_view format{};
  std::uint64_t file_bytes = 0;
  tp::source_view source{};
  /// Where each tensor begins: for safetensors in the file's data, as its header counts; for arrays in the image's
  /// data.
  std::vector<std::uint64_t> offsets{};
  /// Of a directory: the path of a file in it that was found changed; empty: none so far.
  std::function<std::string()> changed{};
  std::shared_ptr<const void> keep{};

  /// Errors: those of safetensors_image::open and numpy_file::open.
  static tp::result<tensor_file> open(const std::string& path);
  const tp::image_schema& schema() const { return *source.schema; }
};

/// npy and npz, where that component is there (TENSORPULL_TOOLS_ARRAYS).
tp::result<void> open_arrays(const std::string& path, tensor_file& to);

}  // namespace tools
