// A file of tensors in any supported format. Its first bytes decide which format it is, because a name may be wrong.
#pragma once

#include <tensorpull/satellites/numpy_files/numpy_file.hpp>
#include <tensorpull/tensors/safetensors/safetensors_image.hpp>

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace tools {

namespace tp = tensorpull;

class tensor_file {
 public:
  /// Errors: those of safetensors_image::open and numpy_file::open.
  static tp::result<tensor_file> open(const std::string& path) {
    auto file = tp::positioned_file::open(path);
    if (!file) return tp::failure(file.error());
    std::array<std::byte, 9> start{};
    if (file->size() >= start.size())
      if (const auto ok = file->read_at(0, start); !ok) return tp::failure(ok.error());
    const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
    // a safetensors header of 67 million characters begins with a number that looks like an archive
    const bool is_header = text.substr(4) == std::string_view("\0\0\0\0{", 5);
    const bool is_array = text.starts_with("\x93NUMPY"),
               is_archive = !is_header && (text.starts_with("PK\3\4") || text.starts_with("PK\5\6"));
    if (!is_array && !is_archive) {
      auto image = tp::safetensors_image::open(path);
      if (!image) return tp::failure(image.error());
      return tensor_file("safetensors", file->size(), std::move(*image));
    }
    auto arrays = tp::numpy_file::open(path);
    if (!arrays) return tp::failure(arrays.error());
    return tensor_file(is_array ? "npy" : "npz", file->size(), std::move(*arrays));
  }

  std::string_view format() const { return format_; }
  std::uint64_t file_bytes() const { return bytes_; }
  tp::source_view source() const {
    if (const auto* const image = std::get_if<tp::safetensors_image>(&content_)) return image->source();
    return std::get<tp::numpy_file>(content_).image().source();
  }
  const tp::image_schema& schema() const { return *source().schema; }

  /// Where tensor i begins: for safetensors in the file's data, as its header counts; for arrays in the image's data.
  std::uint64_t data_offset(std::size_t i) const {
    const auto* const image = std::get_if<tp::safetensors_image>(&content_);
    if (image == nullptr) return schema().tensors[i].begin;
    return image->file_offset(i) - data_begin_;
  }

 private:
  template <class Content>
  tensor_file(std::string_view format, std::uint64_t bytes, Content content)
      : format_(format), bytes_(bytes), content_(std::move(content)) {
    if (const auto* const image = std::get_if<tp::safetensors_image>(&content_)) {
      data_begin_ = bytes;  // the first tensor begins where the data does: a file has no hole
      for (std::size_t i = 0; i < image->schema().tensor_count; ++i)
        data_begin_ = std::min(data_begin_, image->file_offset(i));
    }
  }

  std::string_view format_;
  std::uint64_t bytes_ = 0, data_begin_ = 0;
  std::variant<tp::safetensors_image, tp::numpy_file> content_;
};

}  // namespace tools
