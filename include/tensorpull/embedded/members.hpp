// A model as a constant list of its members, without a macro and without Hana, and the constants of its image. If Hana
// is available, tensors/structs is shorter.
#pragma once

#include <tensorpull/core/dtype.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/image/detail/array_traits.hpp>
#include <tensorpull/image/static.hpp>
#include <tensorpull/image/utf8.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace tensorpull {

/// One member of a model: the name that its tensor has on the wire, and where it is in the struct.
template <class Struct, class Type>
struct member {
  /// The member's type: a scalar, an array of scalars of any rank (one tensor each), a struct that has members_of, or
  /// an array of such structs.
  using type = Type;
  /// `member{"fc1.weight", &mlp::fc1_weight}`. The text of the name has to be a constant.
  constexpr member(std::string_view text, Type Struct::* where) noexcept : name(text), at(where) {}
  std::string_view name;  ///< UTF-8
  Type Struct::* at;  ///< the member
};

/// The list for members_of. The order does not matter: an image has its own.
template <class... Members>
constexpr auto members(Members... list) noexcept {
  return std::tuple<Members...>(list...);
}

/// The members of a model. Specialise it in the global namespace, next to the struct:
///
///     template <>
///     inline constexpr auto tensorpull::members_of<mlp> = tensorpull::members(tensorpull::member{"fc1.weight",
///     &mlp::fc1_weight});
///
/// The names of a struct within a struct have its member's name in front, and those in an array of structs their number
/// besides: `layers.0.weight`.
template <class Model>
inline constexpr auto members_of = nullptr;

namespace detail::embedded {

template <class T>
concept tensor_member = detail::tensor_member<T> && !std::is_const_v<T>;
template <class T>
concept array_member = array_traits<T>::is_array && !tensor_member<T>;
template <class T>
concept struct_member = !array_traits<T>::is_array && !tensor_member<T> && !std::is_const_v<T> &&
                        !std::is_same_v<decltype(members_of<T>), const std::nullptr_t>;

template <class List>
inline constexpr bool all_supported = false;

/// Whether T can be a part of a model.
template <class T>
constexpr bool supported() noexcept {
  if constexpr (tensor_member<T>) return true;
  else if constexpr (array_member<T>) return supported<typename array_traits<T>::element>();
  else if constexpr (struct_member<T>) return all_supported<std::remove_const_t<decltype(members_of<T>)>>;
  else return false;
}
template <class... Members>
inline constexpr bool all_supported<std::tuple<Members...>> = (supported<typename Members::type>() && ...);

/// Tensors of a part of a model.
template <class T>
constexpr std::size_t tensors_of() noexcept {
  if constexpr (tensor_member<T>) return 1;
  else if constexpr (array_member<T>) return array_traits<T>::extent * tensors_of<typename array_traits<T>::element>();
  else
    return std::apply(
        [](const auto&... m) {
          return (std::size_t{0} + ... + tensors_of<typename std::remove_cvref_t<decltype(m)>::type>());
        },
        members_of<T>);
}

/// Takes names and leaves: counts them, or writes them down.
template <class T, class Writer>
constexpr void walk(Writer& writer) noexcept {
  if constexpr (tensor_member<T>) {
    writer.leaf(dtype_of<typename array_traits<T>::scalar>::value, array_traits<T>::rank, shape_of<T>.data(),
                tensor_bytes<T>());
  } else if constexpr (array_member<T>) {
    for (std::size_t i = 0; i < array_traits<T>::extent; ++i) {
      const std::size_t mark = writer.enter(i);
      walk<typename array_traits<T>::element>(writer);
      writer.leave(mark);
    }
  } else {
    std::apply(
        [&writer](const auto&... m) {
          [[maybe_unused]] std::size_t mark = 0;  // there may be no member
          ((mark = writer.enter(m.name.data(), m.name.size()),
            walk<typename std::remove_cvref_t<decltype(m)>::type>(writer), writer.leave(mark)),
           ...);
        },
        members_of<T>);
  }
}
struct name_counter {
  std::size_t length = 0, tensors = 0, characters = 0, longest = 0;
  constexpr std::size_t enter(const char*, std::size_t n) noexcept {
    const std::size_t mark = length;
    length += n + (length != 0 ? 1 : 0);
    return mark;
  }
  constexpr std::size_t enter(std::size_t index) noexcept {
    std::size_t digits = 1;
    while ((index /= 10) != 0) ++digits;
    return enter(nullptr, digits);
  }
  constexpr void leave(std::size_t mark) noexcept { length = mark; }
  constexpr void leaf(dtype, std::size_t, const std::uint64_t*, std::uint64_t) noexcept {
    ++tensors;
    characters += length;
    if (length > longest) longest = length;
  }
};
/// The names of a model that is refused are none, so that the refusal is the only error.
template <class Model, bool Accepted>
inline constexpr static_names<0, 0> names_of{};
template <class Model>
inline constexpr auto names_of<Model, true> = [] {
  constexpr name_counter counts = [] {
    name_counter counter;
    walk<Model>(counter);
    return counter;
  }();
  name_writer<counts.tensors, counts.characters, counts.longest> writer;
  walk<Model>(writer);
  return writer.names();
}();
template <const auto& Names>
constexpr bool names_are_valid() noexcept {
  for (std::size_t i = 0; i < Names.count; ++i)
    if (!is_utf8(Names.name(i)) || Names.name(i) == "__metadata__") return false;
  return true;
}

/// The memory of the k-th tensor in the order of the members. Code for each member, not for each tensor.
template <class T>
const std::byte* tensor_address(const T& part, std::size_t k) noexcept {
  if constexpr (tensors_of<T>() == 0) {
    return nullptr;  // nobody asks
  } else if constexpr (tensor_member<T>) {
    return reinterpret_cast<const std::byte*>(&part);
  } else if constexpr (array_member<T>) {
    constexpr std::size_t each = tensors_of<typename array_traits<T>::element>();
    return tensor_address(part[k / each], k % each);
  } else {
    const std::byte* found = nullptr;
    std::apply(
        [&part, &found, k](const auto&... m) {
          std::size_t first = 0;
          const auto look = [&](const auto& one) {
            constexpr std::size_t n = tensors_of<typename std::remove_cvref_t<decltype(one)>::type>();
            const std::size_t before = first;
            first += n;
            if (k < before || k >= first) return false;
            found = tensor_address(part.*one.at, k - before);
            return true;
          };
          (void)(look(m) || ...);
        },
        members_of<T>);
    return found;
  }
}

template <class Model>
inline constexpr bool accepted = struct_member<Model> && supported<Model>();

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
};

}  // namespace detail::embedded

/// The image of a model that has members_of, as constants: they lie in flash. Images of at most 2 GiB. The model has
/// the machine's byte order, and the image that of every image.
template <class Model>
struct embedded_image
    : detail::embedded::image_constants<
          detail::static_image<detail::embedded::names_of<Model, detail::embedded::accepted<Model>>>> {
 private:
  static constexpr bool accepted = detail::embedded::accepted<Model>;
  static_assert(detail::embedded::struct_member<Model>,
                "tensorpull: the model has no members_of: specialise it next to the struct");
  static_assert(
      !detail::embedded::struct_member<Model> || accepted,
      "tensorpull: a member of the model is neither a scalar, an array of scalars nor a struct that has members_of, or it is const: leave it out of members_of");
  static constexpr const auto& names = detail::embedded::names_of<Model, accepted>;
  static_assert(detail::embedded::names_are_valid<names>(),
                "tensorpull: the name of a tensor is not valid UTF-8, or is __metadata__");
  static_assert(!detail::has_duplicate_names<names>(), "tensorpull: two tensors of the model have the same name");
  using image = detail::static_image<names>;
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
  /// Where the text of each tensor begins in the header, in image order, and where another one's would.
  static constexpr auto texts = [] {
    std::array<std::uint32_t, image::count + 1> list{};
    for (std::size_t i = 0; i < image::count; ++i) list[i] = image::entries.at[i].text_at;
    if constexpr (image::count > 0)
      list[image::count] = static_cast<std::uint32_t>(
          list[image::count - 1] + detail::entry_text_length(image::entries.at[image::count - 1]) + 1);
    return list;
  }();

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
  static void for_parts(const Model& of, std::uint32_t at, std::uint32_t bytes, F f) noexcept {
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
  /// The model.
  using model_type = Model;

  /// The index of the tensor, in image order, to which the header's byte `at` belongs: its text and the comma ahead of
  /// it; tensor_count behind the last. O(tensors).
  static std::uint32_t tensor_of_header(std::uint32_t at) noexcept {
    std::uint32_t i = 0;
    while (i < image::count && at + 1 >= texts[i + 1]) ++i;
    return i;
  }

  /// Writes a range of the data section into the model. False: a `bool` in it is neither 0 nor 1; it is 1 in the model.
  /// Requires that [at, at + bytes.size()) lies within the data section. O(tensors) and the bytes.
  static bool write(Model& to, std::uint32_t at, std::span<const std::byte> bytes) noexcept {
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
  static void read(const Model& from, std::uint32_t at, std::span<std::byte> out) noexcept {
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
