// Lands bytes where the tensors are: the transport writes into the model's own memory, nothing is copied.
#pragma once

#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/image/view.hpp>


namespace tensorpull {

/// Landing in place. Borrows the destination; its contents are unspecified from the first landed byte until finish().
/// The image's header is not kept: its bytes pass through 192 bytes of this object.
class land {
 public:
  static constexpr bool irrevocable = false;

  explicit land(const destination_view& to) noexcept : to_(to) {}

  std::uint64_t fingerprint() const noexcept { return to_.schema->fingerprint; }
  const image_schema* schema() const noexcept { return to_.schema; }

  result<void> begin(const description& d) noexcept {
    // the same fingerprint with another amount of data cannot happen by accident; an owner that lies must still not get past the end
    if (d.image_bytes - d.data_start != to_.schema->image_bytes - to_.schema->header_bytes) return failure(errc::schema_mismatch);
    data_start_ = d.data_start;
    return {};
  }

  prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    if (length == 0 || out.empty()) return {};
    std::size_t text = 0;
    if (offset < data_start_) {
      text = static_cast<std::size_t>(std::min<std::uint64_t>(std::min(length, data_start_ - offset), sizeof header_));
      out[0] = {header_, text};
      if (text == length || offset + text < data_start_) return {1, text};
      out = out.subspan(1);
    }
    const auto s = scatter(to_, to_.schema->header_bytes + (offset + text - data_start_), length - text, out);
    return {s.pieces + (text > 0 ? 1 : 0), s.bytes + text};
  }

  result<void> commit(std::uint64_t, std::span<const std::byte>) noexcept { return {}; }
  result<void> chunk(std::uint64_t, std::uint64_t) noexcept { return {}; }
  void rewind(std::uint64_t) noexcept {}
  /// The destination as an image with its own header, whatever of it has landed.
  source_view read_back() const noexcept { return to_; }
  result<void> finish(const receipt&) noexcept { return {}; }
  void abandon(const error&) noexcept {}

 private:
  destination_view to_;
  std::uint64_t data_start_ = 0;
  std::byte header_[192];
};

static_assert(consumer<land>);

}  // namespace tensorpull
