// Lands bytes where the tensors are: the transport writes into the model's own memory, nothing is copied. Tensors that
// have no address (on a device) land in the staging memory of the destination's writer, which takes them from there. An
// image is little-endian; on a big-endian machine numbers land in memory of this object and are copied from there, so
// that the model always has them in the machine's order.
#pragma once

#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/image/booleans.hpp>
#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/image/view.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <cstring>

namespace tensorpull {

/// Landing in place. Borrows the destination; its contents are unspecified from the first landed byte until finish(),
/// but after it and after abandon() each member of type `bool` is 0 or 1, so that it may be read.
/// The image's header is not kept: its bytes pass through 184 bytes of this object (4 KiB on a big-endian machine,
/// since numbers pass through them too). A destination with a writer costs a call of it for each range of a tensor that
/// has arrived, at most as long as the staging memory.
class land {
 public:
  static constexpr bool irrevocable = false;
  static constexpr bool any_order = true;

  /// Borrows all that the view points to.
  explicit land(const destination_view& to) noexcept : to_(to) {}

  std::uint64_t fingerprint() const noexcept { return to_.schema->fingerprint; }
  const image_schema* schema() const noexcept { return to_.schema; }

  result<void> begin(const description& d) noexcept {
    // the same fingerprint with another amount of data cannot happen by accident; an owner that lies must still not get
    // past the end
    if (d.image_bytes - d.data_start != to_.schema->image_bytes - to_.schema->header_bytes)
      return failure(errc::schema_mismatch);
    if (to_.writer != nullptr && (to_.writer->write == nullptr || to_.writer->staging.empty()))
      return failure(errc::invalid_argument);
    data_start_ = d.data_start;
    return {};
  }

  prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    if (length == 0 || out.empty()) return {};
    std::size_t text = 0;
    if (offset < data_start_) {
      text = static_cast<std::size_t>(std::min<std::uint64_t>(std::min(length, data_start_ - offset), sizeof passing_));
      out[0] = {passing_, text};
      if (text == length || offset + text < data_start_) return {1, text};
      out = out.subspan(1);
    }
    const auto s = scatter(to_, to_.schema->header_bytes + (offset + text - data_start_), length - text, out,
                           {passing_ + text, sizeof passing_ - text});
    return {s.pieces + (text > 0 ? 1 : 0), s.bytes + text};
  }

  /// Errors: the writer's, with the name of the tensor. Nothing can fail without a writer.
  result<void> commit(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    reached_ = std::max(reached_, offset + bytes.size());
    if (little_endian_machine && to_.writer == nullptr) return {};
    if (offset < data_start_) {
      const auto text = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), data_start_ - offset));
      bytes = bytes.subspan(text);
      offset += text;
    }
    return hand_over(to_, to_.schema->header_bytes + (offset - data_start_), bytes);
  }
  result<void> chunk(std::uint64_t, std::uint64_t) noexcept { return {}; }
  void rewind(std::uint64_t) noexcept {}
  /// The destination as an image with its own header, whatever of it has landed. No schema: its writer has no reader.
  source_view read_back() const noexcept { return to_.readable() ? source_view(to_) : source_view{}; }
  /// value_out_of_range: an owner has published a BOOL element that is neither 0 nor 1; the name is its tensor's.
  result<void> finish(const receipt&) noexcept {
    const auto good = check_booleans(to_);
    if (good) to_.complete();
    return good;
  }
  void abandon(const error&) noexcept { mend_booleans(to_, reached_ - std::min(reached_, data_start_)); }

 private:
  destination_view to_;
  std::uint64_t data_start_ = 0;
  std::uint64_t reached_ = 0;  // the end of what was ever committed
  std::byte passing_[little_endian_machine ? 184 : 4096];
};

static_assert(consumer<land>);

namespace detail {
/// Lands bytes that are in memory already, as the image's from `at` on. Errors: those of land.
inline result<void> land_bytes(land& to, std::uint64_t at, std::span<const std::byte> bytes) noexcept {
  std::span<std::byte> spans[16];
  while (!bytes.empty()) {
    const prepared p = to.prepare(at, bytes.size(), spans);
    if (p.bytes == 0) return failure(errc::io, at);
    for (std::size_t i = 0; i < p.pieces; ++i) {
      std::memcpy(spans[i].data(), bytes.data(), spans[i].size());
      bytes = bytes.subspan(spans[i].size());
    }
    // what is indirect is handed over from where it has landed
    for (std::size_t i = 0; i < p.pieces; at += spans[i++].size())
      if (const auto ok = to.commit(at, spans[i]); !ok) return ok;
  }
  return {};
}
}  // namespace detail

}  // namespace tensorpull
