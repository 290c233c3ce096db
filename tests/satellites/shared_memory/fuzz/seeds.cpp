// The seeds of this folder's targets.
#include "fuzz/seeds.hpp"

#include <tensorpull/satellites/shared_memory/segment_index.hpp>

namespace test::fuzz {
namespace {

void make_segments() {
  const auto index = [](unsigned mode, std::uint64_t last_bytes, std::vector<tp::memory_extent> extents,
                        std::size_t tail) {
    bytes b(1 + tp::segment_index::bytes(extents.size()) + tail);
    b[0] = static_cast<std::byte>(mode);
    tp::segment_index::write(std::span(b).subspan(1), 7, last_bytes, extents);
    return b;
  };
  write("segments", "valid-one", index(1, 64 + 100, {{64, 100}}, 100));
  write("segments", "valid-two", index(0, 4096, {{96, 40}, {0, 1000}, {2000, 96}}, 40));
  write("segments", "valid-sealed-anew", index(3, 64 + 8, {{64, 8}}, 8));
  write("segments", "m03-other-version", index(1 | 4, 64 + 100, {{64, 100}}, 100));
  write("segments", "m03-other-length", index(1 | 8, 64 + 100, {{64, 100}}, 100));
  write("segments", "m03-other-size", index(16, 4096, {{80, 40}, {0, 1000}}, 40));
  write("segments", "m03-behind-the-end", index(0, 4096, {{80, 40}, {4090, 7}}, 40));
  write("segments", "m03-wraps", index(0, 4096, {{80, 40}, {~0ull - 3, 8}}, 40));
  write("segments", "m03-is-the-index", index(1, 64 + 100, {{0, 100}}, 100));
  write("segments", "m03-empty-extent", index(0, 4096, {{80, 40}, {0, 0}}, 40));
}

const seeds mine{make_segments};

}  // namespace
}  // namespace test::fuzz
