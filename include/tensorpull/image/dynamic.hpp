// An image made at run time from a list of tensors. Decides what is copied (names, shapes, strides, metadata: never
// tensor bytes).
//
// One heap allocation for everything, none after. At most 96 bytes a tensor of rank <= 4 that is contiguous, plus the
// names.
#pragma once

#include <tensorpull/image/arrange.hpp>
#include <tensorpull/image/detail/carver.hpp>
#include <tensorpull/image/view.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/memory.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <span>
#include <utility>

namespace tensorpull {

/// The schema of a list of tensors, with their addresses. Owns its table, not the tensors: their memory outlives it.
/// Movable; the schema and all views stay valid when it is moved.
class dynamic_image {
 public:
  /// An image for reading. Names, shapes and metadata are copied, so they may be temporary.
  /// Errors: those of arrange; invalid_argument (strides that do not match the shape, no address, more than 65,535
  /// dimensions, a width to swap that its numbers do not have, a token without reader);
  /// unsupported_layout (strided, and packed or of more than 64 dimensions); out_of_memory.
  /// `reader`, copied, reads the tensors that are `indirect`; what its context points to outlives the image.
  [[nodiscard]] static result<dynamic_image> make(std::span<const tensor_view> tensors,
                                                  std::span<const metadata_entry> metadata = {},
                                                  const source_reader& reader = {}) noexcept {
    return make_from(tensors, metadata, reader);
  }
  /// An image for reading and writing. Further errors: unsupported_layout for a tensor that is not contiguous, or that
  /// shares memory with another; invalid_argument for a token without writer, or a writer without staging memory.
  /// `writer`, copied, takes the bytes of the tensors that are `indirect`, and its reader reads them; what they point
  /// to outlives the image.
  [[nodiscard]] static result<dynamic_image> make(std::span<const mutable_tensor_view> tensors,
                                                  std::span<const metadata_entry> metadata = {},
                                                  const destination_writer& writer = {}) noexcept {
    return make_from(tensors, metadata, writer);
  }

  /// Valid while the image lives, also after a move.
  const image_schema& schema() const noexcept { return table_->schema; }
  /// For reading. Borrows the image's table and the tensors.
  source_view source() const noexcept {
    return {&table_->schema, nullptr, table_->where, table_->reader.read != nullptr ? &table_->reader : nullptr};
  }

  /// Whether it was made from mutable views.
  bool writable() const noexcept { return table_->writable; }
  /// Requires writable(); ends the program otherwise.
  destination_view destination() noexcept {
    if (!writable()) detail::bad_result_access();
    return {&table_->schema, nullptr, table_->where, table_->writer};
  }
  /// Heap memory of the table, in bytes.
  std::size_t table_bytes() const noexcept { return table_->bytes; }

 private:
  struct table {
    image_schema schema{};
    std::uintptr_t* where = nullptr;
    source_reader reader{};
    const destination_writer* writer = nullptr;
    std::size_t bytes = 0;
    bool writable = false;
  };
  struct release {
    void operator()(table* t) const noexcept { ::operator delete(static_cast<void*>(t)); }
  };
  struct sizes {
    std::uint64_t extents = 0, strides = 0, characters = 0;
  };

  explicit dynamic_image(table* t) noexcept : table_(t) {}

  static result<bool> needs_strides(const tensor_view& tensor, std::size_t index, bool writable,
                                    bool reachable) noexcept {
    const std::size_t rank = tensor.shape.size();
    const auto size = size_bytes(tensor.type, tensor.shape);
    if (!size) return failure(size.error().code, index, tensor.name);
    if (rank > std::numeric_limits<std::uint16_t>::max() ||
        (tensor.data == nullptr && *size != 0 && !tensor.indirect) ||
        (!tensor.strides_bytes.empty() && (tensor.strides_bytes.size() != rank || tensor.indirect)) ||
        (tensor.indirect && !reachable) || tensor.swap_bytes > 8)
      return failure(errc::invalid_argument, index, tensor.name);
    const bool strided = !is_contiguous(tensor.type, tensor.shape, tensor.strides_bytes);
    if (strided && (writable || rank > max_strided_rank || bits(tensor.type) % 8 != 0))
      return failure(errc::unsupported_layout, index, tensor.name);
    return strided;
  }

  /// Gives a tensor that begins before the one in front of it in memory has ended; null: there is none. Sorts both.
  static const tensor_entry* sort_by_address(std::span<tensor_entry> entries,
                                             std::span<std::uintptr_t> where) noexcept {
    detail::sort_in_place(
        entries.size(), [&](std::size_t a, std::size_t b) { return where[a] < where[b]; },
        [&](std::size_t a, std::size_t b) {
          std::swap(entries[a], entries[b]);
          std::swap(where[a], where[b]);
        });
    std::uintptr_t end = 0;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].indirect || entries[i].size_bytes() == 0) continue;
      if (where[i] < end) return &entries[i];
      end = where[i] + static_cast<std::uintptr_t>(entries[i].size_bytes());
    }
    return nullptr;
  }

  template <class View, class Access>
  static result<dynamic_image> make_from(std::span<const View> tensors, std::span<const metadata_entry> metadata,
                                         const Access& access) noexcept {
    constexpr bool writable = std::is_same_v<View, mutable_tensor_view>;
    bool reachable = false;
    std::uint64_t writer_bytes = 0;
    if constexpr (writable) {
      reachable = access.write != nullptr && !access.staging.empty();
      writer_bytes = reachable ? sizeof(destination_writer) : 0;
    } else {
      reachable = access.read != nullptr;
    }
    sizes total;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto strided = needs_strides(tensors[i], i, writable, reachable);
      if (!strided) return failure(strided.error());
      total.extents += tensors[i].shape.size();
      total.strides += *strided ? tensors[i].shape.size() : 0;
      total.characters += tensors[i].name.size();
    }
    for (const metadata_entry& pair : metadata) total.characters += pair.key.size() + pair.value.size();

    const std::uint64_t bytes = sizeof(table) + writer_bytes +
                                tensors.size() * std::uint64_t{sizeof(tensor_entry) + sizeof(std::uintptr_t)} +
                                (total.extents + total.strides) * 8 +
                                metadata.size() * std::uint64_t{sizeof(metadata_entry)} + total.characters;
    if (bytes > std::numeric_limits<std::size_t>::max() / 2) return failure(errc::out_of_memory);
    void* const block = ::operator new(static_cast<std::size_t>(bytes), std::nothrow);
    if (block == nullptr) return failure(errc::out_of_memory);

    dynamic_image image(::new (block) table{});
    detail::carver carve(static_cast<std::byte*>(block) + sizeof(table));
    const std::span entries(carve.take<tensor_entry>(tensors.size()), tensors.size());
    std::uint64_t* extents = carve.take<std::uint64_t>(static_cast<std::size_t>(total.extents));
    std::int64_t* strides = carve.take<std::int64_t>(static_cast<std::size_t>(total.strides));
    // pointers: of 4 bytes on some machines
    [[maybe_unused]] auto* const writer = carve.take<destination_writer>(writer_bytes != 0 ? 1 : 0);
    const std::span pairs(carve.take<metadata_entry>(metadata.size()), metadata.size());
    const std::span where(carve.take<std::uintptr_t>(tensors.size()), tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const tensor_view tensor = tensors[i];
      const bool strided = *needs_strides(tensor, i, writable, reachable);
      tensor_entry& made = entries[i];
      made.name = carve.copy(tensor.name);
      made.type = tensor.type;
      made.indirect = tensor.indirect;
      made.rank = static_cast<std::uint16_t>(tensor.shape.size());
      made.swap_bytes = tensor.swap_bytes & 15u;  // checked above
      made.shape = extents;
      made.strides_bytes = strided ? strides : nullptr;
      extents = std::copy(tensor.shape.begin(), tensor.shape.end(), extents);
      if (strided) strides = std::copy(tensor.strides_bytes.begin(), tensor.strides_bytes.end(), strides);
      where[i] = reinterpret_cast<std::uintptr_t>(tensor.data);
    }
    for (std::size_t i = 0; i < metadata.size(); ++i)
      pairs[i] = {carve.copy(metadata[i].key), carve.copy(metadata[i].value)};

    auto schema = arrange(entries, where, pairs);
    if (!schema) return failure(schema.error());
    if constexpr (writable) {
      if (const tensor_entry* const shared = sort_by_address(entries, where))
        return failure(errc::unsupported_layout, 0, shared->name);
      schema = arrange(entries, where, pairs);
    }
    table& made = *image.table_;
    made = {*schema, where.data(), {}, nullptr, static_cast<std::size_t>(bytes), writable};
    if constexpr (writable) {
      if (reachable) {
        made.writer = writer;
        *writer = access;
        if (access.reader != nullptr) {
          made.reader = *access.reader;
          writer->reader = &made.reader;
        }
      }
    } else {
      made.reader = access;
    }
    return image;
  }

  detail::unique_ptr<table, release> table_;
};

}  // namespace tensorpull
