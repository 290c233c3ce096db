// A file of tensors in any supported format. Its first bytes decide which format it is, because a name may be wrong.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/image/view.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tools {

namespace tp = tensorpull;

class tensor_file {
 public:
  /// What a format has to give.
  class content {
   public:
    virtual ~content() = default;
    virtual tp::source_view source() const = 0;
    /// Where tensor i begins: for safetensors in the file's data, as its header counts; for arrays in the image's data.
    virtual std::uint64_t data_offset(std::size_t i) const = 0;
  };

  /// Errors: those of safetensors_image::open and numpy_file::open.
  static tp::result<tensor_file> open(const std::string& path);

  std::string_view format() const { return format_; }
  std::uint64_t file_bytes() const { return bytes_; }
  tp::source_view source() const { return content_->source(); }
  const tp::image_schema& schema() const { return *source().schema; }
  std::uint64_t data_offset(std::size_t i) const { return content_->data_offset(i); }

 private:
  tensor_file(std::string_view format, std::uint64_t bytes, std::unique_ptr<content> c)
      : format_(format), bytes_(bytes), content_(std::move(c)) {}

  std::string_view format_;
  std::uint64_t bytes_ = 0;
  std::unique_ptr<content> content_;
};

/// npy and npz, where that component is there (TENSORPULL_TOOLS_ARRAYS).
tp::result<std::unique_ptr<tensor_file::content>> open_arrays(const std::string& path);

}  // namespace tools
