// npy and npz files.
#include "tensor_file.hpp"

#include <tensorpull/satellites/numpy_files/numpy_file.hpp>

#include <utility>

namespace tools {

tp::result<void> open_arrays(const std::string& path, tensor_file& to) {
  auto opened = tp::numpy_file::open(path);
  if (!opened) return tp::failure(opened.error());
  const auto file = std::make_shared<const tp::numpy_file>(std::move(*opened));
  to.source = file->image().source();
  for (const tp::tensor_entry& t : to.schema().entries()) to.offsets.push_back(t.begin);
  to.keep = file;
  return {};
}

}  // namespace tools
