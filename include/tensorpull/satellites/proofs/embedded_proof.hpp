// A small machine proves what lands by a root that it knows.
#pragma once

#include <tensorpull/consumers/resume_cursor.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/embedded/landing.hpp>
#include <tensorpull/satellites/proofs/blake3.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

namespace detail::embedded {
template <class Landing>
struct step_of {};
template <class Landing>
  requires requires { Landing::cursor_step; }
struct step_of<Landing> {
  static constexpr std::uint32_t cursor_step = Landing::cursor_step;
};
}  // namespace detail::embedded

/// Stands in front of a landing, as `proved` does in front of a consumer: a pull whose bytes are not those of the image
/// that `values` prove ends as digest_mismatch, and the bytes that end a wrong group are never written. Its cursor is
/// then thrown away, so the next pull begins at byte 0.
///
/// `Level`: a group is 2^Level bytes of the image, header included. By default the whole is one, whose value is the
/// root; it is at most 2 GiB. In smaller groups a lie is found earlier. The header is that of the program, so an owner
/// whose header has metadata has another root. RAM on a machine of 32 bits: 128 bytes, and 32 for each of the levels
/// between 1 KiB and a group. Cost: a pass of BLAKE3, and one over what is there whenever a pull goes on.
template <embedded_landing Landing, unsigned Level = 31>
class proved_landing : public detail::embedded::step_of<Landing> {
  static constexpr std::uint32_t header_bytes_ = Landing::image::header_bytes,
                                 image_bytes_ = Landing::image::image_bytes;
  static_assert(Level >= 10 && Level <= 31, "tensorpull: a group has 2^10 to 2^31 bytes");
  static_assert(image_bytes_ > header_bytes_, "tensorpull: there is nothing to prove in a model without data");

 public:
  using image = typename Landing::image;  ///< what lands
  static constexpr std::uint32_t groups = ((image_bytes_ - 1) >> Level) + 1;  ///< of the image

  /// Borrows both. `values`: those of the groups in order; of one group the root. They are trusted: of several, ask
  /// is_proof() first.
  proved_landing(Landing& to, const std::array<blake3_value, groups>& values) noexcept : to_(to), values_(values) {}
  proved_landing(Landing&, const std::array<blake3_value, groups>&&) = delete;  ///< they would be gone

  /// Whether `values` are those of an image with this root.
  static bool is_proof(const std::array<blake3_value, groups>& values, const blake3_value& root) noexcept {
    return detail::blake3::root_over<detail::blake3::rolled, groups_depth_>(values) == root;
  }

  /// Writes the next bytes. Errors: digest_mismatch: they end a group, and it is wrong; the landing's.
  result<void> write(std::uint32_t at, std::span<const std::byte> bytes) noexcept {
    if (at == 0) (void)begin();
    if (take(bytes)) return to_.write(at, bytes);
    if constexpr (lasting_landing<Landing>) (void)to_.save({});
    return failure(errc::digest_mismatch, at);
  }
  /// Reads what has landed.
  result<void> read(std::uint32_t at, std::span<std::byte> out) noexcept { return to_.read(at, out); }

  /// That of the landing, if the whole groups before it are right; otherwise nothing has landed.
  resume_cursor cursor() noexcept
    requires lasting_landing<Landing>
  {
    resume_cursor c = to_.cursor();
    bool right = begin() && c.offset <= image_bytes_;
    std::byte some[64];
    for (const auto end = static_cast<std::uint32_t>(c.offset); right && hashed_ < end;) {
      const std::span piece(some, std::min<std::size_t>(sizeof some, end - hashed_));
      right = to_.read(hashed_ - header_bytes_, piece) && take(piece);
    }
    if (!right) c = {};
    return c;
  }
  /// Keeps it.
  result<void> save(const resume_cursor& c) noexcept
    requires lasting_landing<Landing>
  {
    return to_.save(c);
  }
  /// Whether the whole image is there, and right. A bootloader asks this before it uses the data.
  bool valid() noexcept
    requires lasting_landing<Landing>
  {
    return cursor().offset == image_bytes_;
  }

 private:
  static constexpr std::size_t depth_ = std::bit_width((std::min(image_bytes_, std::uint32_t{1} << Level) - 1) /
                                                       detail::blake3::chunk_bytes),
                               groups_depth_ = std::bit_width(groups);
  using hash = lean_blake3<depth_>;

  bool begin() noexcept {
    hashed_ = 0;
    hash_.reset();
    return take(image::header);
  }
  /// False: they end a group, and it is wrong; then no more are taken.
  bool take(std::span<const std::byte> bytes) noexcept {
    if (bytes.size() > image_bytes_ - hashed_) return false;
    while (!bytes.empty()) {
      const std::uint32_t group = groups == 1 ? 0 : hashed_ >> Level,
                          end = group == groups - 1 ? image_bytes_ : (group + 1) << Level;
      const std::size_t n = std::min<std::size_t>(bytes.size(), end - hashed_);
      hash_.update(bytes.first(n));
      hashed_ += static_cast<std::uint32_t>(n);
      bytes = bytes.subspan(n);
      if (hashed_ < end) break;
      if ((groups == 1 ? hash_.value() : hash_.chaining_value()) != values_[group]) {
        hashed_ = image_bytes_;
        return false;
      }
      if constexpr (groups > 1) hash_.reset(hashed_ / detail::blake3::chunk_bytes);
    }
    return true;
  }

  Landing& to_;
  const std::array<blake3_value, groups>& values_;
  std::uint32_t hashed_ = 0;  // bytes of the image
  hash hash_{};
};

}  // namespace tensorpull
