// A consumer that keeps nothing but a hash. It verifies what an owner serves, measures a connection, or is one side of
// a tee.
#pragma once

#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/integrity/concept.hpp>
#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>

#include <array>
#include <optional>

namespace tensorpull {

/// Takes an image of any schema, or of one fingerprint. The bytes pass through `ScratchBytes` of this object.
template <hash Hash = xxhash_digest, std::size_t ScratchBytes = 16 * 1024>
class basic_digest {
 public:
  static constexpr bool irrevocable = false;
  static_assert(ScratchBytes > 0, "tensorpull: basic_digest needs at least one byte of scratch memory");

  /// `expected_fingerprint`: the only schema to take; 0: any.
  explicit basic_digest(std::uint64_t expected_fingerprint = 0) noexcept : fingerprint_(expected_fingerprint) {}

  std::uint64_t fingerprint() const noexcept { return fingerprint_; }
  static const image_schema* schema() noexcept { return nullptr; }

  result<void> begin(const description& d) noexcept {
    if (fingerprint_ != 0 && d.fingerprint != fingerprint_) return failure(errc::schema_mismatch);
    hash_.emplace();
    checked_.emplace();
    bytes_ = 0;
    return {};
  }
  prepared prepare(std::uint64_t, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    return detail::prepare_in(scratch_, length, out);
  }
  result<void> commit(std::uint64_t, std::span<const std::byte> bytes) noexcept {
    hash_->update(bytes);
    bytes_ += bytes.size();
    return {};
  }
  result<void> chunk(std::uint64_t, std::uint64_t) noexcept {
    checked_ = hash_;
    return {};
  }
  void rewind(std::uint64_t offset) noexcept {
    hash_ = checked_;
    bytes_ = offset;
  }
  result<void> finish(const receipt&) noexcept { return {}; }
  void abandon(const error&) noexcept {}

  /// Of the bytes so far, in image order: with the default hash, what `xxhsum -H3` prints for the file. 0 before
  /// begin().
  std::uint64_t value() const noexcept { return hash_ ? hash_->digest() : 0; }
  /// Bytes that the hash has taken so far.
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  std::uint64_t fingerprint_, bytes_ = 0;
  std::optional<Hash> hash_, checked_;  // checked: at the end of the last whole chunk
  std::array<std::byte, ScratchBytes> scratch_;
};

/// The digest with the xxHash library's XXH3-64.
using digest = basic_digest<>;

static_assert(consumer<digest>);

}  // namespace tensorpull
