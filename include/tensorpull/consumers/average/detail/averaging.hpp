// What the updates of one weighted average share: the sums, the round, and the first thing that spoils the result.
#pragma once

#include <tensorpull/consumers/average/chunk_buffers.hpp>
#include <tensorpull/consumers/average/detail/weighted_sums.hpp>
#include <tensorpull/consumers/receipt.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

namespace tensorpull::detail {

struct averaging {
  averaging(weighted_sums made, chunk_buffers* shared) noexcept : sums(std::move(made)), buffers(shared) {}

  weighted_sums sums;
  chunk_buffers* buffers = nullptr;      ///< null where updates are staged
  std::uint64_t round = 1;               ///< an update that began in another round adds nothing more
  std::size_t halfway = 0;               ///< updates that have added something and have not ended
  std::size_t whole = 0;
  std::size_t partial = 0;
  const void* staging_user = nullptr;
  std::optional<error> spoiled;          ///< what cannot be taken out again

  /// Whether an update of this weight and description may begin.
  result<void> check(double weight, const description& d, error_name peer) const noexcept {
    // as a float too: sums are float32 for most dtypes
    if (!std::isnormal(static_cast<float>(weight)) || weight < 0) return failure(errc::invalid_argument, 0, peer);
    const image_schema& schema = sums.schema();
    if (d.fingerprint != schema.fingerprint || d.data_start > d.image_bytes || d.image_bytes - d.data_start != schema.data_bytes())
      return failure(errc::schema_mismatch, 0, peer);
    return {};
  }

  void spoil(errc code, std::uint64_t at, error_name peer) noexcept {
    if (!spoiled) spoiled = error{code, 0, at, peer};
  }

  void reset() noexcept {
    sums.clear();
    ++round;
    halfway = whole = partial = 0;
    staging_user = nullptr;
    spoiled.reset();
  }

  result<void> finish() noexcept {
    if (spoiled) return failure(*spoiled);
    if (halfway > 0) return failure(errc::partial_update, halfway);
    return sums.write();
  }
};

}  // namespace tensorpull::detail
