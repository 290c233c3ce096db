// A chunking policy of your own: short chunks at first, so that a slow connection shows progress soon, then longer
// ones.
#include <tensorpull/chunking/concept.hpp>
#include <tensorpull/tensorpull.hpp>

#include <algorithm>
#include <cstdio>

using namespace tensorpull;

struct Model {
  float weight[1000][100];
};
BOOST_HANA_ADAPT_STRUCT(Model, weight);

/// A chunk is as long as everything before it: First, First, 2 * First, 4 * First, ... up to Max. The length depends on
/// the offset alone, so a resumed transfer has the same chunks.
template <std::uint64_t First, std::uint64_t Max>
struct doubling_bytes {
  static_assert(First > 0 && First <= Max && Max <= max_payload_bytes);
  using is_chunking_policy = void;
  // the size of buffers; a pipeline compares it with the transport's longest payload
  static constexpr std::uint64_t max_chunk_bytes = Max;
  // the tensors' places are not used, so the first request need not wait for a description
  static constexpr bool needs_layout = false;

  static constexpr std::uint64_t next(std::uint64_t offset, const chunk_context& context) noexcept {
    return std::min(std::clamp(offset, First, Max), context.image_bytes - offset);
  }
};
static_assert(chunking_strategy<doubling_bytes<1024, 65536>>);

int main() {
  using net = pipeline<raw_tensors<Model>, doubling_bytes<1024, 65536>, loopback>;
  static Model trained, mine;
  trained.weight[999][99] = 1;
  static net::downloader owner;
  const auto ref = owner.add_tensors(trained);
  if (!ref) return 1;
  const auto done = net::download_tensors(owner, *ref, mine);
  if (!done) return 1;
  std::printf("%s: %llu bytes in %llu chunks\n", to_string(done->outcome).data(),
              static_cast<unsigned long long>(done->bytes), static_cast<unsigned long long>(done->chunks));
  return mine.weight[999][99] == 1 ? 0 : 1;
}
