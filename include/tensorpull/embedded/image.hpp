// The image of a struct as constants, for small machines: no table of addresses, and its header lies in flash.
#pragma once

#include <tensorpull/core/dtype.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/image/detail/array_traits.hpp>
#include <tensorpull/image/static.hpp>
#include <tensorpull/tensors/members/raw_tensors.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace tensorpull {

namespace detail::embedded {

/// The memory of the k-th tensor in the order of the members. Code for each member, not for each tensor.
template <class T>
const std::byte* tensor_address(const T& part, std::size_t k) noexcept;
template <class T, template <class...> class List, class... Members>
const std::byte* address_among(std::type_identity<List<Members...>>, const T& part, std::size_t k) noexcept {
  const std::byte* found = nullptr;
  std::size_t first = 0;
  const auto look = [&]<class Member>(std::type_identity<Member>) {
    constexpr std::size_t n = counts_of<typename member_of<Member>::template type<T>>.tensors;
    const std::size_t before = first;
    first += n;
    if (k < before || k >= first) return false;
    found = tensor_address(member_of<Member>::get(part), k - before);
    return true;
  };
  (void)(look(std::type_identity<Members>{}) || ...);
  return found;
}
template <class T>
const std::byte* tensor_address(const T& part, std::size_t k) noexcept {
  if constexpr (counts_of<T>.tensors == 0) {
    return nullptr;  // nobody asks
  } else if constexpr (tensor_member<T>) {
    return reinterpret_cast<const std::byte*>(&part);
  } else if constexpr (array_member<T>) {
    constexpr std::size_t each = counts_of<typename array_traits<T>::element>.tensors;
    return tensor_address(part[k / each], k % each);
  } else {
    return address_among(std::type_identity<members_in<T>>{}, part, k);
  }
}

/// The digest of a whole image on a small machine.
template <class Image>
using default_hash = std::conditional_t<(Image::image_bytes >= lean_xxh3_64::least_bytes), lean_xxh3_64, xxh3_64>;

/// The constants of an image.
template <class Image>
struct image_constants {
  static_assert(Image::schema.image_bytes <= 0x7fffffff, "tensorpull: the image of an embedded model is at most 2 GiB");
  /// As that of any other image. Using it at run time costs 50 bytes of flash for each tensor.
  static constexpr const image_schema& schema = Image::schema;
  /// Number of tensors.
  static constexpr std::size_t tensor_count = Image::count;
  /// Length of the header.
  static constexpr std::uint32_t header_bytes = static_cast<std::uint32_t>(schema.header_bytes);
  /// Length of header and data section.
  static constexpr std::uint32_t image_bytes = static_cast<std::uint32_t>(schema.image_bytes);
  /// Length of the data section.
  static constexpr std::uint32_t data_bytes = image_bytes - header_bytes;
  /// Of the schema.
  static constexpr std::uint64_t fingerprint = schema.fingerprint;
  /// The header itself.
  static constexpr auto header = [] {
    std::array<std::byte, header_bytes> bytes{};
    write_header(schema, 0, bytes);
    return bytes;
  }();

  /// The index of the tensor, in image order, to which the header's byte `at` belongs: its text and the comma ahead of
  /// it; tensor_count behind the last. O(tensors).
  static std::uint32_t tensor_of_header(std::uint32_t at) noexcept {
    std::uint32_t i = 0;
    while (i < tensor_count && at + 1 >= texts[i + 1]) ++i;
    return i;
  }

 private:
  /// Where the text of each tensor begins in the header, in image order, and where another one's would.
  static constexpr auto texts = [] {
    std::array<std::uint32_t, tensor_count + 1> list{};
    for (std::size_t i = 0; i < tensor_count; ++i) list[i] = Image::entries.at[i].text_at;
    if constexpr (tensor_count > 0)
      list[tensor_count] = static_cast<std::uint32_t>(
          list[tensor_count - 1] + detail::entry_text_length(Image::entries.at[tensor_count - 1]) + 1);
    return list;
  }();
};

}  // namespace detail::embedded

/// The image of a model as constants: they lie in flash. `Model` is what raw_tensors<Model> takes, but for ties and
/// arrays of structs. Images of at most 2 GiB. The model has the machine's byte order, and the image that of every
/// image.
template <class Model>
struct embedded_image : detail::embedded::image_constants<typename raw_tensors<Model>::image> {
 private:
  static_assert(!raw_tensors<Model>::has_ties,
                "tensorpull: a small machine's model has no ties: a tensor of it is one range of the image");

 public:
  /// The model.
  using model_type = typename raw_tensors<Model>::model_type;

 private:
  using image = typename raw_tensors<Model>::image;
  /// Where each tensor ends in the data section, in image order.
  static constexpr auto ends = [] {
    std::array<std::uint32_t, image::count + 1> list{};
    for (std::size_t i = 0; i < image::count; ++i) list[i] = static_cast<std::uint32_t>(image::placed.at[i].end);
    return list;
  }();
  /// Which member each tensor is, in image order.
  static constexpr auto order = [] {
    std::array<std::uint16_t, image::count + 1> list{};
    for (std::size_t i = 0; i < image::count; ++i) list[i] = static_cast<std::uint16_t>(image::order.at[i]);
    return list;
  }();
  static_assert(image::count <= 0xffff);

  /// Less one: the bytes of each tensor's numbers, in image order. Only a big-endian machine has a use for it.
  static constexpr auto widths = [] {
    std::array<std::uint8_t, image::count + 1> list{};
    for (std::size_t i = 0; i < image::count; ++i)
      list[i] = static_cast<std::uint8_t>(
          image::placed.at[i].type == dtype::c64 ? 3 : bits(image::placed.at[i].type) / 8 - 1);
    return list;
  }();
  static constexpr bool reverses = std::endian::native != std::endian::little;

  /// Calls f(tensor's index, its memory, where in it, where in the range, bytes) with each part of a range that lies in
  /// one tensor.
  template <class F>
  static void for_parts(const model_type& of, std::uint32_t at, std::uint32_t bytes, F f) noexcept {
    std::uint32_t begin = 0, done = 0;
    for (std::size_t i = 0; done < bytes && i < image::count; begin = ends[i++]) {
      const std::uint32_t end = ends[i];
      if (at >= end) continue;
      const std::uint32_t n = bytes - done < end - at ? bytes - done : end - at;
      f(i, detail::embedded::tensor_address(of, order[i]), at - begin, done, n);
      at += n;
      done += n;
    }
  }
  /// BOOL tensors are the last of an image.
  static constexpr std::size_t first_bool = [] {
    std::size_t i = image::count;
    while (i > 0 && image::placed.at[i - 1].type == dtype::boolean) --i;
    return i;
  }();
  static constexpr bool has_bools = first_bool < image::count;

 public:
  /// Writes a range of the data section into the model. False: a `bool` in it is neither 0 nor 1; it is 1 in the model.
  /// Requires that [at, at + bytes.size()) lies within the data section. O(tensors) and the bytes.
  static bool write(model_type& to, std::uint32_t at, std::span<const std::byte> bytes) noexcept {
    bool good = true;
    for_parts(to, at, static_cast<std::uint32_t>(bytes.size()),
              [&](std::size_t i, const std::byte* tensor, std::uint32_t offset, std::uint32_t from, std::uint32_t n) {
                auto* const out = const_cast<std::byte*>(tensor);
                if (has_bools && i >= first_bool) {
                  for (std::uint32_t k = 0; k < n; ++k) {
                    const std::byte b = bytes[from + k];
                    good = good && b <= std::byte{1};
                    out[offset + k] = b != std::byte{0} ? std::byte{1} : b;
                  }
                } else if constexpr (reverses) {
                  for (std::uint32_t k = 0; k < n; ++k) out[(offset + k) ^ widths[i]] = bytes[from + k];
                } else {
                  std::memcpy(out + offset, bytes.data() + from, n);
                }
              });
    return good;
  }
  /// Reads a range of the data section out of the model. Requires that [at, at + out.size()) lies within the data
  /// section. O(tensors) and the bytes.
  static void read(const model_type& from, std::uint32_t at, std::span<std::byte> out) noexcept {
    for_parts(from, at, static_cast<std::uint32_t>(out.size()),
              [&]([[maybe_unused]] std::size_t i, const std::byte* tensor, std::uint32_t offset, std::uint32_t to,
                  std::uint32_t n) {
                if constexpr (reverses)
                  for (std::uint32_t k = 0; k < n; ++k) out[to + k] = tensor[(offset + k) ^ widths[i]];
                else std::memcpy(out.data() + to, tensor + offset, n);
              });
  }
};

}  // namespace tensorpull
