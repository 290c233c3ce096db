// A file as the source of its own bytes: an image of one tensor. It reads back a file whose schema is not known.
#pragma once

#include <tensorpull/image/view.hpp>

#include <cstdint>

namespace tensorpull::detail {

/// A view's schema, entry and reader, which must stay where they are while it is used.
class file_bytes {
 public:
  /// The first `bytes` bytes of what `read` reads at positions. The first `header` bytes of those are no tensor's, and
  /// are not read; `read` is given their number, and positions behind them.
  source_view view(std::uint64_t bytes, const source_reader& read, std::uint64_t header = 0) noexcept {
    entry_.indirect = true;
    entry_.end = bytes - header;
    schema_ = {};
    schema_.tensors = &entry_;
    schema_.tensor_count = 1;
    schema_.header_bytes = header;
    schema_.image_bytes = bytes;
    where_ = static_cast<std::uintptr_t>(header);
    reader_ = read;
    return {&schema_, nullptr, &where_, &reader_};
  }

 private:
  tensor_entry entry_{};
  image_schema schema_{};
  std::uintptr_t where_ = 0;
  source_reader reader_{};
};

}  // namespace tensorpull::detail
