// A file of tensors becomes its next version by a difference, or by the tensors that have changed: the old file is
// read, and the new one is written beside it.
#pragma once

#include "received_file.hpp"
#include "tensor_file.hpp"

#include <tensorpull/consumers/any_schema/published_schema.hpp>
#include <tensorpull/satellites/differences/applied_difference.hpp>
#include <tensorpull/satellites/differences/changed_tensors.hpp>
#include <tensorpull/satellites/differences/deflate/deflate.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace tools {

/// What a pull of a difference goes into.
using applied_to_file = tp::applied_difference<tp::deflate_coder>;

/// What a pull of tensors that have changed goes into. The owner is told to forget that it was asked: the pull of the
/// whole, which finds that all is there, is counted.
class changed_to_file : public tp::land {
 public:
  explicit changed_to_file(const tp::destination_view& to) noexcept : land(to) {}

  /// Whether all of them are there. The pull has ended as `cancelled` then.
  bool complete() const noexcept { return complete_; }

  tp::result<void> finish(const tp::receipt& r) noexcept {
    if (const auto ok = land::finish(r); !ok) return ok;
    complete_ = true;
    return tp::failure(errc::cancelled);
  }
  static constexpr bool looked() noexcept { return true; }

 private:
  bool complete_ = false;
};
static_assert(tp::consumer<changed_to_file>);

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
  /// What is written, and read from the base.
  tp::destination_view model() { return image_->destination(); }
  /// Copies the tensors that have not changed.
  tp::result<void> copy_others(const tp::changed_tensors& changed) {
    const tp::image_schema &all = image_->schema(), &some = *changed.destination().schema;
    const tp::source_view from = base_.source();
    std::vector<std::byte> piece(64 * 1024);
    for (std::size_t i = 0, k = 0; i < all.tensor_count; ++i) {
      const tp::tensor_entry& t = all.tensors[i];
      if (k < some.tensor_count && some.tensors[k].name == t.name) {  // both in the order of the image
        ++k;
        continue;
      }
      for (std::uint64_t at = t.begin, n = 0; at < t.end; at += n) {
        n = std::min<std::uint64_t>(piece.size(), t.end - at);
        const std::span these = std::span(piece).first(static_cast<std::size_t>(n));
        if (const auto ok = tp::detail::read_range(from, from.schema->header_bytes + at, these); !ok) return ok;
        if (const auto ok = put(all.header_bytes + at, these); !ok) return ok;
      }
    }
    return {};
  }
  /// All of the file is on the disk.
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
