// Reads what is published under a reference, its names, dtypes, shapes and metadata, and takes none of its tensors.
#pragma once

#include <tensorpull/consumers/any_schema/new_model.hpp>

#include <algorithm>
#include <cstddef>
#include <span>

namespace tensorpull {

/// A consumer of one pull that ends when the image's header has arrived: the pull then returns `cancelled`, and
/// complete() is true. The owner forgets that it asked, so a look counts for nobody, also if it ends with an error (an
/// owner of an earlier version, and one that is asked over HTTP, count a recipient that gave up, or vanished). Bytes
/// behind the header in the same chunk are thrown away, so ask for short chunks, with a window of 1. It is the owner's
/// word: no digest is compared, since that would need all of the bytes; ask with `unverified`. Memory, limits and
/// errors: those of new_model, which limits to no bytes of tensors here.
class published_schema {
  /// Makes nothing.
  struct nothing_made {
    std::byte nowhere{};
    result<std::byte*> allocate(const tensor_entry&) noexcept { return &nowhere; }
    void clear() noexcept {}
  };

 public:
  static constexpr bool irrevocable = false;  ///< nothing is taken

  /// Allocates nothing. `max_bytes` of the limits is ignored.
  explicit published_schema(new_model_limits limits) noexcept
      : header_({}, {~std::uint64_t{0}, limits.max_header_bytes, limits.max_tensors}) {}

  /// Whether the header has arrived, and is the one that was described.
  bool complete() const noexcept { return complete_; }
  /// Once complete(): what is published, in image order. Valid while this object lives.
  const image_schema& schema_of_image() const noexcept { return header_.made(); }
  /// The owner's statements about the image: its version, and its length.
  const description& described() const noexcept { return described_; }

  static std::uint64_t fingerprint() noexcept { return 0; }
  static const image_schema* schema() noexcept { return nullptr; }
  result<void> begin(const description& d) noexcept {
    described_ = d;
    complete_ = false;
    return header_.begin(d);
  }
  prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    if (offset < described_.data_start)
      return header_.prepare(offset, std::min(length, described_.data_start - offset), out);
    return detail::prepare_in(passing_, length, out);
  }
  result<void> commit(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    // the tensors that were "made" have no memory that could take anything
    return offset < described_.data_start ? header_.commit(offset, bytes) : result<void>{};
  }
  result<void> chunk(std::uint64_t offset, std::uint64_t length) noexcept {
    if (const auto ok = header_.chunk(offset, length); !ok) return ok;
    if (offset + length < described_.data_start) return {};
    complete_ = true;
    return failure(errc::cancelled);
  }
  void rewind(std::uint64_t offset) noexcept { header_.rewind(offset); }
  /// It is asked for too little to reach an end, whatever the length of the image.
  static result<void> finish(const receipt&) noexcept { return {}; }
  void abandon(const error& why) noexcept {
    if (!complete_) header_.abandon(why);
  }
  /// The owner is told to forget that it was asked, however the look has ended.
  static constexpr bool looked() noexcept { return true; }

 private:
  new_model<nothing_made> header_;
  description described_{};
  std::byte passing_[1024];
  bool complete_ = false;
};
static_assert(consumer<published_schema>);

}  // namespace tensorpull
