// Tensors of an image that a recipient asks for by name: their ranges and their digests. A request of a few hundred bytes can cost the owner a pass
// over all tensors that it names, so digests are remembered, and there is a budget for those that are not.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/framing/frame.hpp>
#include <tensorpull/image/schema.hpp>
#include <tensorpull/integrity/range_digest.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/chrono.hpp>

#include <cstdint>
#include <span>

namespace tensorpull::detail {

/// Named tensors of an image: which ones, and their size.
struct subset_choice {
  std::uint64_t fingerprint = 0;  ///< of a schema of these tensors alone
  std::uint64_t bytes = 0;
  friend constexpr bool operator==(const subset_choice&, const subset_choice&) = default;
};

inline bool among(std::span<const std::string_view> names, std::string_view name) noexcept {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return true;
  return false;
}

/// Finds the named tensors and sorts their ranges in image order into `ranges`. Cost: tensors times names.
/// bad_request with `at` = the index of the first name that is not there, or that comes twice.
inline result<subset_choice> find_subset(const image_schema& schema, std::span<const std::string_view> names, std::span<byte_range> ranges) noexcept {
  std::size_t found = 0;
  subset_choice chosen;
  xxh3_64 schema_hash;
  for (std::size_t i = 0; i < schema.tensor_count && found < names.size(); ++i) {
    const tensor_entry& t = schema.tensors[i];
    if (!among(names, t.name)) continue;
    ranges[found++] = {schema.header_bytes + t.begin, schema.header_bytes + t.end};
    chosen.bytes += t.size_bytes();
    hash_entry(schema_hash, t);
  }
  if (found < names.size())
    for (std::size_t n = 0; n < names.size(); ++n) {
      bool there = false;
      for (std::size_t i = 0; i < schema.tensor_count; ++i) there = there || schema.tensors[i].name == names[n];
      if (!there || among(names.first(n), names[n])) return failure(errc::bad_request, n, names[n]);
    }
  chosen.fingerprint = schema_hash.digest();
  return chosen;
}

/// The digest over several ranges, one after the other.
template <hash Hash>
result<std::uint64_t> ranges_digest(const source_view& image, std::span<const byte_range> ranges) noexcept {
  Hash h;
  for (std::size_t i = 0; i < ranges.size(); ++i)
    if (const auto read = hash_range(h, image, ranges[i].begin, ranges[i].end - ranges[i].begin); !read) return failure(read.error());
  return h.digest();
}

/// Remembers sixteen digests, of which the oldest makes room for a new one, and keeps a budget in bytes for each second of the owner's clock. No heap.
template <hash Hash, class Limits>
class subset_digests {
 public:
  /// The digest over `ranges` of the image that is published as (slot, generation). The first request costs a pass over the bytes; later ones get
  /// the same digest as long as it is remembered. busy: other subsets have used up the budget. io: the image could not be read.
  result<std::uint64_t> of(const source_view& image, std::uint32_t slot, std::uint32_t generation, const subset_choice& chosen,
                           std::span<const byte_range> ranges, std::chrono::milliseconds now) noexcept {
    for (const entry& e : entries_)
      if (e.generation == generation && e.slot == slot && e.chosen == chosen) return e.digest;
    refill(now);
    if (used_ >= per_second) return failure(errc::busy);
    const auto made = ranges_digest<Hash>(image, ranges);
    if (!made) return made;
    if (now.count() != 0) used_ += chosen.bytes;  // without a clock there are no budgets
    entries_[next_++ % std::size(entries_)] = {chosen, *made, slot, generation};
    return made;
  }

 private:
  static constexpr std::uint64_t per_second = Limits::subset_bytes_per_second;

  struct entry {
    subset_choice chosen{};
    std::uint64_t digest = 0;
    std::uint32_t slot = 0, generation = 0;  // no publication has generation 0
  };

  void refill(std::chrono::milliseconds now) noexcept {
    const auto passed_ms = std::min<std::uint64_t>(static_cast<std::uint64_t>((now - refilled_at_).count()), 3'600'000);
    used_ -= std::min(used_, passed_ms * (per_second / 1000));
    refilled_at_ = now;
  }

  entry entries_[16];
  std::uint64_t used_ = 0;
  std::chrono::milliseconds refilled_at_{};
  std::uint32_t next_ = 0;
};

}  // namespace tensorpull::detail
