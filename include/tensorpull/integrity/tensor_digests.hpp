// The digest of each tensor of an image, as its metadata states them: by these a recipient that has an earlier version
// knows which tensors it lacks.
#pragma once

#include <tensorpull/core/digits.hpp>
#include <tensorpull/image/arrange.hpp>
#include <tensorpull/image/detail/carver.hpp>
#include <tensorpull/image/view.hpp>
#include <tensorpull/integrity/range_digest.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/memory.hpp>
#include <tensorpull/std/optional.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <string_view>

namespace tensorpull {

/// The metadata's key. Its value has 16 hexadecimal digits for each tensor, in image order: XXH3-64 of the tensor's
/// bytes as the image has them.
inline constexpr std::string_view tensor_digests_key = "tensorpull.digests";

/// The digests in an image's metadata, as above. Empty: none, or a text that is longer or shorter than those of its
/// tensors. They are the owner's word, and nothing has compared them with the bytes. Cost: a look at each pair of the
/// metadata.
constexpr std::string_view tensor_digests_of(const image_schema& schema) noexcept {
  for (const metadata_entry& pair : schema.pairs())
    if (pair.key == tensor_digests_key)
      return pair.value.size() / 16 == schema.tensor_count && pair.value.size() % 16 == 0 ? pair.value
                                                                                          : std::string_view();
  return {};
}
/// The digest of tensor i in `digests`, which tensor_digests_of() gave and is not empty. Nothing: it is not 16 digits.
constexpr optional<std::uint64_t> stated_tensor_digest(std::string_view digests, std::size_t i) noexcept {
  return detail::hex_number(digests.substr(16 * i, 16));
}
/// Whether `digests`, as above, has this digest for tensor i.
constexpr bool says_digest(std::string_view digests, std::size_t i, std::uint64_t is) noexcept {
  const auto stated = stated_tensor_digest(digests, i);
  return stated && *stated == is;
}

/// The digest of tensor i alone. `stop` is asked before every 16 MiB. Cost: one pass over the tensor. Errors:
/// cancelled; io if a source_reader failed.
template <hash Hash, std::size_t SliceBytes = 4096>
result<std::uint64_t> tensor_digest_of(const source_view& image, std::size_t i, const stop_token& stop = {}) noexcept {
  const tensor_entry& t = image.schema->tensors[i];
  Hash h;
  if (const auto read = hash_range<Hash, SliceBytes>(h, image, image.schema->header_bytes + t.begin, t.end - t.begin,
                                                     stop);
      !read)
    return failure(read.error());
  return h.digest();
}

/// An image whose metadata has the digests of its tensors, besides what it had before. Borrows the image that it was
/// made of, with its names and shapes. Can be moved; source() stays valid then.
class image_with_tensor_digests {
 public:
  /// Cost: one pass over the bytes; one allocation, of 72 bytes a tensor and 40 a pair of metadata.
  /// Errors: out_of_memory; io if a source_reader failed; does_not_fit: there would be more header text than is
  /// written.
  template <hash Hash, std::size_t SliceBytes = 4096>
  static result<image_with_tensor_digests> make(const source_view& image) noexcept {
    const image_schema& old = *image.schema;
    const std::uint64_t bytes = sizeof(table) + old.tensor_count * std::uint64_t{sizeof(tensor_entry) + 16} +
                                (old.metadata_count + 1) * std::uint64_t{sizeof(metadata_entry)};
    if (bytes > std::numeric_limits<std::size_t>::max() / 2) return failure(errc::out_of_memory);
    void* const block = ::operator new(static_cast<std::size_t>(bytes), std::nothrow);
    if (block == nullptr) return failure(errc::out_of_memory);
    image_with_tensor_digests made(::new (block) table{image, {}});
    detail::carver carve(static_cast<std::byte*>(block) + sizeof(table));
    const std::span entries(carve.take<tensor_entry>(old.tensor_count), old.tensor_count);
    const std::span pairs(carve.take<metadata_entry>(old.metadata_count + 1), old.metadata_count + 1);
    char* const text = carve.take<char>(16 * old.tensor_count);
    for (std::size_t i = 0; i < old.tensor_count; ++i) {
      const auto is = tensor_digest_of<Hash, SliceBytes>(image, i);
      if (!is) return failure(is.error());
      detail::put_word(*is, text + 16 * i);
      entries[i] = old.tensors[i];
    }
    std::size_t count = 0;
    for (const metadata_entry& pair : old.pairs())
      if (pair.key != tensor_digests_key) pairs[count++] = pair;  // those of an earlier owner are written anew
    pairs[count++] = {tensor_digests_key, {text, 16 * old.tensor_count}};
    if (const auto ordered = detail::arrange_metadata(pairs.first(count)); !ordered) return failure(ordered.error());
    const auto schema = detail::place_entries(entries, pairs.first(count));
    if (!schema) return failure(schema.error());
    made.table_->schema = *schema;
    made.table_->schema.of_members = old.of_members;
    made.table_->image.schema = &made.table_->schema;
    return made;
  }

  /// The image that is published.
  const source_view& source() const noexcept { return table_->image; }

 private:
  struct table {
    source_view image{};
    image_schema schema{};
  };
  struct release {
    void operator()(table* t) const noexcept { ::operator delete(static_cast<void*>(t)); }
  };
  explicit image_with_tensor_digests(table* t) noexcept : table_(t) {}

  detail::unique_ptr<table, release> table_;
};

}  // namespace tensorpull
