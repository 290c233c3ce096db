// The index of an image in memory that another program shares.
#include "fuzz/target.hpp"
#include "support/words.hpp"

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/satellites/shared_memory/segment_index.hpp>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

namespace test::fuzz {
namespace {

namespace tp = tensorpull;

constexpr std::uint64_t most_extents = 1000;

struct segment {
  byte_vector bytes;
  std::vector<bool> asked;
};

}  // namespace

/// One byte of mode: bit 0: one segment; bit 1: the digest is made to fit. Then the bytes of the first segment. Sizes,
/// version and length of the image, which the system and the owner's description say, are those of the index, unless
/// bit 2 (another version), 3 (another length) or 4 (another size of the last segment) is set.
static unsigned segments(input given) {
  if (given.empty()) return 0;
  const auto mode = static_cast<unsigned>(given[0]);
  segment first{{given.begin() + 1, given.end()}, std::vector<bool>(given.size() - 1)};
  const auto word = [&](std::size_t i) {
    return 8 * i + 8 <= first.bytes.size() ? tp::load_le64(first.bytes.data() + 8 * i) : 0;
  };
  const bool one = (mode & 1) != 0;
  if ((mode & 2) != 0 && first.bytes.size() >= 48) {
    tp::xxh3_64 hash;
    const const_byte_span all(first.bytes);
    hash.update(all.first(40));
    hash.update(
        all.subspan(48, static_cast<std::size_t>(std::min<std::uint64_t>((all.size() - 48) / 16, word(4))) * 16));
    tp::store_le64(first.bytes.data() + 40, hash.digest());
  }
  const std::uint64_t first_bytes = first.bytes.size(), version = word(1) + (mode >> 2 & 1),
                      image_bytes = word(2) + (mode >> 3 & 1);
  const std::uint64_t last_bytes = (one ? first_bytes : word(3)) + (mode >> 4 & 1);
  const auto read = [&](std::uint64_t at, byte_span to) {
    require(at <= first.bytes.size() && to.size() <= first.bytes.size() - at, "nothing behind the segment is read");
    for (std::size_t i = 0; i < to.size(); ++i) {
      require(!first.asked[static_cast<std::size_t>(at) + i], "no byte is read twice");
      first.asked[static_cast<std::size_t>(at) + i] = true;
    }
    std::copy_n(first.bytes.begin() + static_cast<std::ptrdiff_t>(at), to.size(), to.begin());
    return true;
  };
  const auto index = tp::segment_index::read(read, first_bytes, last_bytes, one, version, image_bytes, most_extents);
  if (!index) return 0;
  require((mode & 0x1c) == 0 || (one && (mode & 0x0c) == 0 && word(3) == last_bytes),
          "what the owner described is what is there");
  require(index->size() <= most_extents, "an index is bounded");
  // every byte of the image is somewhere within its segment, and the pieces make up the image
  std::uint64_t at = 0;
  for (std::size_t pieces = 0; at < image_bytes; ++pieces) {
    require(pieces < index->size(), "there are no more pieces than extents");
    const auto there = index->find(at);
    const std::uint64_t room = there.first ? first_bytes : last_bytes;
    require(there.bytes > 0 && there.at <= room && there.bytes <= room - there.at, "a piece lies within its segment");
    require(!there.first || there.at >= tp::segment_index::bytes(index->size()), "the index is no part of the image");
    const auto last = index->find(at + there.bytes - 1);
    require(last.at == there.at + there.bytes - 1 && last.bytes == 1 && last.first == there.first,
            "a piece is in one place");
    at += there.bytes;
  }
  require(at == image_bytes, "the pieces end where the image ends");
  return static_cast<unsigned>(1 + index->size());
}
static const registered segments_target{{"segments", segments}};

}  // namespace test::fuzz
