// Where the bytes of a model land on a small machine: in the model's memory, or where a program of its own puts them
// (flash_landing.hpp).
#pragma once

#include <tensorpull/consumers/resume_cursor.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/embedded/image.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace tensorpull {

/// A landing L takes the data section of one image, without its header:
///  1. `L::image` is an embedded_image;
///  2. `l.write(at, bytes)` takes the next bytes of the data section: in order, each byte once in a transfer, a chunk
///     at most in a call. A transfer begins at byte 0, or at the cursor, and another that begins at 0 overwrites
///     everything. An error ends the transfer;
///  3. `l.read(at, out)` gives back what has landed, so that it can be hashed after a restart. An error makes the
///     transfer begin at 0;
///  4. optionally, `l.cursor()` is how far an earlier program got, {} if it is not known, and `l.save(cursor)` keeps
///     it: after each chunk that has landed, and so at most once for each chunk. An error of save() ends the transfer.
///     With it a transfer goes on after a power cut. A cursor that is wrong costs a pass over what has landed and
///     nothing else, since the bytes that it speaks of are hashed again;
///  5. optionally, `L::cursor_step`: where a chunk reaches or crosses a multiple of so many bytes of data, it ends at
///     one, so that save() is called there.
template <class L>
concept embedded_landing = requires(L& l, const L& c, std::uint32_t at, std::span<const std::byte> in,
                                    std::span<std::byte> out) {
  { L::image::image_bytes } -> std::convertible_to<std::uint32_t>;
  { l.write(at, in) } noexcept -> std::same_as<result<void>>;
  { l.read(at, out) } noexcept -> std::same_as<result<void>>;
};

/// A landing that survives a restart.
template <class L>
concept lasting_landing = embedded_landing<L> && requires(L& l, const resume_cursor& cursor) {
  { l.cursor() } noexcept -> std::same_as<resume_cursor>;
  { l.save(cursor) } noexcept -> std::same_as<result<void>>;
};

namespace detail::embedded {
/// The digest of the image of a landing, if that is one.
template <class Landing>
struct hash_for {
  using type = xxh3_64;
};
template <embedded_landing Landing>
struct hash_for<Landing> {
  using type = default_hash<typename Landing::image>;
};
}  // namespace detail::embedded

/// Landing in the model's memory, which is borrowed. It has no cursor, so a restart begins at byte 0. The model is
/// unspecified from the first byte that has landed until the transfer is `completed`; a `bool` in it is 0 or 1 at any
/// time.
template <class Model>
class model_landing {
 public:
  using image = embedded_image<Model>;  ///< what lands

  /// Borrows the model.
  explicit model_landing(typename image::model_type& into) noexcept : model_(into) {}

  /// value_out_of_range: the owner has published a BOOL element that is neither 0 nor 1.
  result<void> write(std::uint32_t at, std::span<const std::byte> bytes) noexcept {
    if (!image::write(model_, at, bytes)) return failure(errc::value_out_of_range, at);
    return {};
  }
  /// Cannot fail.
  result<void> read(std::uint32_t at, std::span<std::byte> out) noexcept {
    image::read(model_, at, out);
    return {};
  }

 private:
  typename image::model_type& model_;
};

}  // namespace tensorpull
