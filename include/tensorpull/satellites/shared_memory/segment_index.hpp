// Where an image lies in shared memory. The owner writes this index once and seals it; a recipient reads each word
// once, into memory of its own, and believes none of it.
//
// Layout, in little-endian words of 64 bits, at the beginning of the first segment:
//   0  magic, which has the version of this layout
//   1  version of the image
//   2  bytes of the image
//   3  bytes of the last segment
//   4  number of extents
//   5  XXH3-64 of words 0 to 4 and of all extents
//   6  for each extent, two words: where it lies, and its bytes
// The extents make up the image in order. With one segment all lie in it. With two, the first extent is the image's
// header and lies in the first segment; all others lie in the last one: the memory of a model that was allocated there.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>

namespace tensorpull {

/// A piece of an image in its segment.
struct memory_extent {
  std::uint64_t at = 0;  ///< the first byte in the segment
  std::uint64_t bytes = 0;  ///< its length
};

/// The checked index of an image in shared memory. Its extents are copied: one allocation.
class segment_index {
 public:
  static constexpr std::uint64_t magic = 0x3158'4449'4d48'5354;  ///< "TSHMIDX1"
  static constexpr std::size_t head_words = 6;  ///< words before the extents

  /// Bytes of an index with so many extents.
  static constexpr std::size_t bytes(std::size_t extents) noexcept { return 8 * (head_words + 2 * extents); }

  /// Writes an index to `out`, of which bytes(extents.size()) are used.
  static void write(std::span<std::byte> out, std::uint64_t version, std::uint64_t last_bytes,
                    std::span<const memory_extent> extents) noexcept {
    const auto put = [&](std::size_t i, std::uint64_t word) { store_le64(out.data() + 8 * i, word); };
    std::uint64_t image = 0;
    for (std::size_t i = 0; i < extents.size(); ++i) {
      image += extents[i].bytes;
      put(head_words + 2 * i, extents[i].at);
      put(head_words + 2 * i + 1, extents[i].bytes);
    }
    put(0, magic);
    put(1, version);
    put(2, image);
    put(3, last_bytes);
    put(4, extents.size());
    put(5, digest_of(out.first(bytes(extents.size()))));
  }

  /// Reads an index. `read(at, span) -> bool` reads bytes of the first segment, each of them once. `first_bytes`,
  /// `last_bytes`: of the segments, by the system; equal if there is `one` segment. `most`: the most extents. Errors:
  /// bad_shared_memory, with the wrong word (`at`); out_of_memory; does_not_fit: more extents.
  template <class Read>
  static result<segment_index> read(Read read, std::uint64_t first_bytes, std::uint64_t last_bytes, bool one,
                                    std::uint64_t version, std::uint64_t image_bytes, std::uint64_t most) noexcept {
    std::array<std::byte, 8 * head_words> head;
    if (first_bytes < head.size() || !read(std::uint64_t{0}, std::span<std::byte>(head)))
      return failure(errc::bad_shared_memory);
    const auto word = [&](std::size_t i) { return load_le64(head.data() + 8 * i); };
    const std::array<std::uint64_t, 4> expected{magic, version, image_bytes, last_bytes};
    for (std::size_t i = 0; i < expected.size(); ++i)
      if (word(i) != expected[i]) return failure(errc::bad_shared_memory, i);
    const std::uint64_t count = word(4);
    if (count == 0 || count > (first_bytes - head.size()) / 16 || (!one && count < 2))
      return failure(errc::bad_shared_memory, 4);
    if (count > most) return failure(errc::does_not_fit, count);

    segment_index out;
    out.place_.reset(new (std::nothrow) place[static_cast<std::size_t>(count) + 1]);
    if (!out.place_) return failure(errc::out_of_memory, count);
    out.count_ = static_cast<std::size_t>(count);
    // their raw words lie in that same memory until they are checked
    const std::span<std::byte> raw(reinterpret_cast<std::byte*>(out.place_.get()), 16 * out.count_);
    if (!read(std::uint64_t{head.size()}, raw)) return failure(errc::bad_shared_memory);
    if (digest_of(head, raw) != word(5)) return failure(errc::bad_shared_memory, 5);

    const std::uint64_t index_end = bytes(out.count_);
    std::uint64_t begin = 0;
    for (std::size_t i = 0; i < out.count_; ++i) {
      const std::uint64_t at = load_le64(raw.data() + 16 * i), n = load_le64(raw.data() + 16 * i + 8);
      const bool first = one || i == 0;
      const std::uint64_t room = first ? first_bytes : last_bytes;
      if (n == 0 || at > room || n > room - at || (first && at < index_end) || n > image_bytes - begin)
        return failure(errc::bad_shared_memory, head_words + 2 * i);
      out.place_[i] = {begin, at};
      begin += n;
    }
    if (begin != image_bytes) return failure(errc::bad_shared_memory, 2);
    out.place_[out.count_] = {begin, 0};
    out.one_ = one;
    return out;
  }

  /// No extents.
  segment_index() noexcept = default;

  /// A contiguous range of the image.
  struct found {
    std::uint64_t at = 0;  ///< where, in the segment
    std::uint64_t bytes = 0;  ///< its length
    bool first = false;  ///< in the first segment, which has the index; otherwise in the last
  };
  /// Where the image's byte `offset` lies, and what follows it. Requires an offset within the image. O(log extents).
  found find(std::uint64_t offset) const noexcept {
    std::size_t low = 0, high = count_;
    while (high - low > 1) {
      const std::size_t middle = low + (high - low) / 2;
      (place_[middle].begin <= offset ? low : high) = middle;
    }
    return {place_[low].at + (offset - place_[low].begin), place_[low + 1].begin - offset, one_ || low == 0};
  }
  /// How many extents there are.
  std::size_t size() const noexcept { return count_; }

 private:
  struct place {
    std::uint64_t begin, at;
  };

  static std::uint64_t digest_of(std::span<const std::byte> head, std::span<const std::byte> extents) noexcept {
    xxh3_64 hash;
    hash.update(head.first(40));
    hash.update(extents);
    return hash.digest();
  }
  static std::uint64_t digest_of(std::span<const std::byte> index) noexcept {
    return digest_of(index.first(40), index.subspan(8 * head_words));
  }

  std::unique_ptr<place[]> place_;  // and one behind the last, whose `begin` is the end of the image
  std::size_t count_ = 0;
  bool one_ = false;
};

}  // namespace tensorpull
