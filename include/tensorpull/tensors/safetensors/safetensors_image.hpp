// The tensors of a safetensors file as an image: checked when it is opened, read at positions when they are sent. For
// hosts.
//
// A file larger than memory is published with its table and the slice buffer through which tensors are packed (64 KiB a
// thread).
#pragma once

#include <tensorpull/image/arrange.hpp>
#include <tensorpull/image/view.hpp>
#include <tensorpull/system/files.hpp>
#include <tensorpull/tensors/safetensors/detail/safetensors_table.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <utility>

namespace tensorpull {

/// Chooses every tensor of a file.
struct every_tensor {
  constexpr bool operator()(std::string_view) const noexcept { return true; }
};

/// An open file with its table: one descriptor, one heap allocation; at most 96 bytes a tensor of rank <= 4, the names
/// and the metadata. The image is canonical (image/schema.hpp), whatever the order of the file: for a file that
/// safetensors.save wrote it is, byte for byte, the file. Movable; schema and views stay valid when it is moved.
/// The file must not change while it is published. If it becomes shorter, reads fail (io); if its bytes change,
/// recipients that verify the image get another digest.
class safetensors_image {
 public:
  /// Opens and checks a file. `wanted(name)` chooses the tensors to publish (an adapter's or a head's); the whole file
  /// is checked in any case, and its metadata kept. Must not throw.
  /// Errors: those of positioned_file::open and read_safetensors_header; misplaced_tensor (a hole, an overlap),
  /// trailing_bytes, cut_file, duplicate_name, does_not_fit (more header text than the reference library reads),
  /// out_of_memory, io (the file changed meanwhile).
  template <std::predicate<std::string_view> Wanted = every_tensor>
  [[nodiscard]] static result<safetensors_image> open(std::string_view path, Wanted&& wanted = {}) noexcept {
    auto file = positioned_file::open(path);
    if (!file) return failure(file.error());
    detail::header_measure measured;
    const auto bounds = read_safetensors_header(*file, measured);
    if (!bounds) return failure(bounds.error());
    if (file->size() > std::numeric_limits<std::uintptr_t>::max())
      return failure(errc::size_overflow, file->size(), file->name());

    void* const block = ::operator new(sizeof(table) + static_cast<std::size_t>(measured.bytes()), std::nothrow);
    if (block == nullptr) return failure(errc::out_of_memory);
    safetensors_image image(::new (block) table{std::move(*file)});
    table& t = *image.table_;
    detail::header_arrays arrays(static_cast<std::byte*>(block) + sizeof(table), measured);
    if (const auto again = read_safetensors_header(t.file, arrays); !again) return failure(again.error());
    if (arrays.used != measured) return failure(errc::io, 0, t.file.name());

    const std::span entries(arrays.entries, static_cast<std::size_t>(measured.tensors));
    if (const auto covered = detail::check_coverage(entries, *bounds); !covered) return failure(covered.error());
    std::size_t kept = 0;
    for (const tensor_entry& entry : entries) {
      if (!wanted(entry.name)) continue;
      arrays.where[kept] = static_cast<std::uintptr_t>(bounds->data_begin + entry.begin);
      entries[kept] = entry;
      entries[kept++].indirect = true;
    }
    const auto schema = arrange(entries.first(kept), {arrays.where, kept},
                                {arrays.pairs, static_cast<std::size_t>(measured.pairs)});
    if (!schema) return failure(schema.error());
    t.schema = *schema;
    t.where = arrays.where;
    t.reader = {&read, &t.file};
    t.bytes = sizeof(table) + static_cast<std::size_t>(measured.bytes());
    return image;
  }

  /// Valid while the image lives, also after a move.
  const image_schema& schema() const noexcept { return table_->schema; }
  source_view source() const noexcept { return {&table_->schema, nullptr, table_->where, &table_->reader}; }
  /// The open file.
  const positioned_file& file() const noexcept { return table_->file; }
  /// The byte of the file at which tensor i, in image order, begins.
  std::uint64_t file_offset(std::size_t i) const noexcept { return table_->where[i]; }
  /// Heap memory of the table, in bytes.
  std::size_t table_bytes() const noexcept { return table_->bytes; }

 private:
  struct table {
    positioned_file file;
    source_reader reader{};
    image_schema schema{};
    const std::uintptr_t* where = nullptr;
    std::size_t bytes = 0;
  };
  struct release {
    void operator()(table* t) const noexcept {
      t->~table();
      ::operator delete(static_cast<void*>(t));
    }
  };

  explicit safetensors_image(table* t) noexcept : table_(t) {}

  static result<void> read(const void* file, std::uintptr_t begin, std::uint64_t offset,
                           std::span<std::byte> out) noexcept {
    return static_cast<const positioned_file*>(file)->read_at(begin + offset, out);
  }

  std::unique_ptr<table, release> table_;
};

}  // namespace tensorpull
