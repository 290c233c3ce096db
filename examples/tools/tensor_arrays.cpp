// npy and npz files.
#include "tensor_file.hpp"

#include <tensorpull/satellites/numpy_files/numpy_file.hpp>

#include <utility>

namespace tools {
namespace {

class in_arrays final : public tensor_file::content {
 public:
  explicit in_arrays(tp::numpy_file file) : file_(std::move(file)) {}
  tp::source_view source() const override { return file_.image().source(); }
  std::uint64_t data_offset(std::size_t i) const override { return source().schema->tensors[i].begin; }

 private:
  tp::numpy_file file_;
};

}  // namespace

tp::result<std::unique_ptr<tensor_file::content>> open_arrays(const std::string& path) {
  auto arrays = tp::numpy_file::open(path);
  if (!arrays) return tp::failure(arrays.error());
  return std::unique_ptr<tensor_file::content>(std::make_unique<in_arrays>(std::move(*arrays)));
}

}  // namespace tools
