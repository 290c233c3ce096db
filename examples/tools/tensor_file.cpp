#include "tensor_file.hpp"

#include <tensorpull/tensors/safetensors/safetensors_image.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace tools {
namespace {

class in_safetensors final : public tensor_file::content {
 public:
  in_safetensors(tp::safetensors_image image, std::uint64_t bytes) : image_(std::move(image)), data_begin_(bytes) {
    // the first tensor begins where the data does: a file has no hole
    for (std::size_t i = 0; i < image_.schema().tensor_count; ++i)
      data_begin_ = std::min(data_begin_, image_.file_offset(i));
  }
  tp::source_view source() const override { return image_.source(); }
  std::uint64_t data_offset(std::size_t i) const override { return image_.file_offset(i) - data_begin_; }

 private:
  tp::safetensors_image image_;
  std::uint64_t data_begin_;
};

}  // namespace

tp::result<tensor_file> tensor_file::open(const std::string& path) {
  const auto file = tp::positioned_file::open(path);
  if (!file) return tp::failure(file.error());
  std::array<std::byte, 9> start{};
  if (file->size() >= start.size())
    if (const auto ok = file->read_at(0, start); !ok) return tp::failure(ok.error());
  const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  // a safetensors header of 67 million characters begins with a number that looks like an archive
  const bool is_header = text.substr(4) == std::string_view("\0\0\0\0{", 5);
  const bool is_array = text.starts_with("\x93NUMPY"),
             is_archive = !is_header && (text.starts_with("PK\3\4") || text.starts_with("PK\5\6"));
  if constexpr (TENSORPULL_TOOLS_ARRAYS)
    if (is_array || is_archive) {
      auto arrays = open_arrays(path);
      if (!arrays) return tp::failure(arrays.error());
      return tensor_file(is_array ? "npy" : "npz", file->size(), std::move(*arrays));
    }
  auto image = tp::safetensors_image::open(path);
  if (!image) return tp::failure(image.error());
  return tensor_file("safetensors", file->size(), std::make_unique<in_safetensors>(std::move(*image), file->size()));
}

}  // namespace tools
