#include "tensor_file.hpp"

#include "error_text.hpp"

#include <tensorpull/tensors/safetensors/safetensors_image.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace tools {
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
  tensor_file made{.file_bytes = file->size()};
  if constexpr (TENSORPULL_TOOLS_ARRAYS)
    if (is_array || is_archive) {
      made.format = is_array ? "npy" : "npz";
      if (const auto ok = open_arrays(path, made); !ok) return tp::failure(ok.error());
      // NumPy's own archive may be empty; that of other programs has other files
      if (text.starts_with("PK\3\4") && made.schema().tensor_count == 0)
        return tp::failure(errc::bad_file, 0, no_arrays);
      return made;
    }
  auto opened = tp::safetensors_image::open(path);
  if (!opened) return tp::failure(opened.error());
  const auto image = std::make_shared<const tp::safetensors_image>(std::move(*opened));
  made.format = "safetensors";
  made.source = image->source();
  // the first tensor begins where the data does: a file has no hole
  std::uint64_t begin = made.file_bytes;
  for (std::size_t i = 0; i < made.schema().tensor_count; ++i) begin = std::min(begin, image->file_offset(i));
  for (std::size_t i = 0; i < made.schema().tensor_count; ++i) made.offsets.push_back(image->file_offset(i) - begin);
  made.keep = image;
  return made;
}

}  // namespace tools
