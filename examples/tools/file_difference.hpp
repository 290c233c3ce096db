// A file of tensors becomes its next version by a difference: the old file is read, and the new one is written beside
// it.
#pragma once

#include "received_file.hpp"
#include "tensor_file.hpp"

#include <tensorpull/consumers/any_schema/published_schema.hpp>
#include <tensorpull/differences/applied_difference.hpp>
#include <tensorpull/differences/deflate/deflate.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace tools {

/// What a pull of a difference goes into.
using applied_to_file = tp::applied_difference<tp::deflate_coder>;

/// The next version of `base`, written into a file that is to be: the header as it was published, and tensors that are
/// read from the one and written to the other. Borrows all three. Memory: what applied_difference takes, and 64 KiB.
class file_difference {
 public:
  /// Writes the header. schema_mismatch: `seen` has other tensors than `base`. Errors: those of the file.
  static tp::result<std::unique_ptr<file_difference>> begin(const tensor_file& base, const tp::published_schema& seen,
                                                            tp::safetensors_file& file) {
    std::unique_ptr<file_difference> made(new file_difference(base, seen, file));
    const tp::image_schema& schema = seen.schema_of_image();
    if (schema.fingerprint != base.schema().fingerprint) return tp::failure(errc::schema_mismatch);
    std::vector<tp::mutable_tensor_view> views;
    for (std::size_t i = 0; i < schema.tensor_count; ++i) {
      const tp::tensor_entry& t = schema.tensors[i];
      views.push_back({t.name, t.type, t.extents(), reinterpret_cast<std::byte*>(i), {}, true});
    }
    made->writer_.context = made.get();
    made->writer_.write = &file_difference::write;
    made->writer_.staging = made->staging_;
    made->reader_ = {&file_difference::read, made.get()};
    made->writer_.reader = &made->reader_;
    auto image = tp::dynamic_image::make(std::span<const tp::mutable_tensor_view>(views), schema.pairs(),
                                         made->writer_);
    if (!image) return tp::failure(image.error());
    made->image_.emplace(std::move(*image));
    const tp::image_schema& ours = made->image_->schema();
    const tp::description& d = seen.described();
    if (ours.header_bytes != d.data_start || ours.image_bytes != d.image_bytes)
      return tp::failure(errc::schema_mismatch);  // an owner whose headers are written in another way
    auto applied = applied_to_file::make(made->image_->destination(), made->coder_);
    if (!applied) return tp::failure(applied.error());
    made->applied_.emplace(std::move(*applied));
    if (const auto ok = file.begin(d); !ok) return tp::failure(ok.error());
    for (std::uint64_t at = 0; at < d.data_start;) {
      const std::size_t n = tp::write_header(ours, at, made->staging_);
      if (const auto ok = made->put(at, std::span(made->staging_).first(n)); !ok) return tp::failure(ok.error());
      at += n;
    }
    return made;
  }

  /// What the difference is pulled into.
  applied_to_file& target() { return *applied_; }
  /// The difference has been applied: all of the file is on the disk.
  tp::result<void> end() { return file_.safetensors_file::chunk(0, seen_.described().image_bytes); }

 private:
  file_difference(const tensor_file& base, const tp::published_schema& seen, tp::safetensors_file& file)
      : base_(base), seen_(seen), file_(file) {}

  tp::result<void> put(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    while (!bytes.empty()) {
      std::array<std::span<std::byte>, 1> room;
      if (file_.safetensors_file::prepare(offset, bytes.size(), room).pieces == 0) return tp::failure(errc::io);
      const std::size_t n = std::min(room[0].size(), bytes.size());
      std::copy_n(bytes.begin(), n, room[0].begin());
      if (const auto ok = file_.safetensors_file::commit(offset, room[0].first(n)); !ok) return ok;
      offset += n;
      bytes = bytes.subspan(n);
    }
    return {};
  }
  static tp::result<void> write(void* self, std::uintptr_t tensor, std::uint64_t offset,
                                std::span<const std::byte> bytes) noexcept {
    auto& to = *static_cast<file_difference*>(self);
    const tp::image_schema& schema = to.seen_.schema_of_image();
    return to.put(to.seen_.described().data_start + schema.tensors[tensor].begin + offset, bytes);
  }
  /// Of the old file, whose tensors lie in the same order: a block is read before it is written, and never again.
  static tp::result<void> read(const void* self, std::uintptr_t tensor, std::uint64_t offset,
                               std::span<std::byte> out) noexcept {
    const auto& from = *static_cast<const file_difference*>(self);
    const tp::source_view base = from.base_.source();
    return tp::detail::read_range(base, base.schema->header_bytes + base.schema->tensors[tensor].begin + offset, out);
  }

  const tensor_file& base_;
  const tp::published_schema& seen_;
  tp::safetensors_file& file_;
  tp::deflate_coder coder_;
  std::array<std::byte, 64 * 1024> staging_;
  tp::destination_writer writer_{};
  tp::source_reader reader_{};
  std::optional<tp::dynamic_image> image_;
  std::optional<applied_to_file> applied_;
};

}  // namespace tools
