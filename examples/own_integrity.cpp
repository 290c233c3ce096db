// An integrity policy of your own, for a device without xxHash and ISA-L: a CRC32C of each chunk in 20 lines of
// portable code, and the library's portable XXH3-64 for the whole image.
#include <tensorpull/integrity/concept.hpp>
#include <tensorpull/tensorpull.hpp>

#include <array>
#include <cstdio>

using namespace tensorpull;

struct Model {
  float weight[1000][100];
};
BOOST_HANA_ADAPT_STRUCT(Model, weight);

/// A hash of chunks: CRC32C with a table of 1 KiB. `kind` is its number in frames; the other end may use another
/// implementation.
class portable_crc32c {
 public:
  static constexpr digest_kind kind = digest_kind::crc32c;

  void update(std::span<const std::byte> bytes) noexcept {
    for (const std::byte b : bytes) state_ = state_ >> 8 ^ table[(state_ ^ static_cast<std::uint32_t>(b)) & 0xff];
  }
  std::uint64_t digest() const noexcept { return ~state_ & 0xffff'ffffu; }

 private:
  static constexpr auto table = [] {
    std::array<std::uint32_t, 256> made{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = (c & 1) != 0 ? c >> 1 ^ 0x82f63b78u : c >> 1;
      made[i] = c;
    }
    return made;
  }();
  std::uint32_t state_ = 0xffff'ffffu;
};

/// The policy: each chunk is checked before the consumer's chunk() is called, and the whole image against the published
/// version, which is its XXH3-64.
struct portable_checks {
  using is_integrity_policy = void;
  using hash_type = xxh3_64;
  using chunk_hash_type = portable_crc32c;
  static constexpr bool whole = true;
  static constexpr bool per_chunk = true;
};
static_assert(hash<portable_crc32c> && integrity_policy<portable_checks>);

int main() {
  portable_crc32c known;
  known.update(std::as_bytes(std::span("123456789", 9)));
  using net = pipeline<raw_tensors<Model>, fixed_bytes<16_KiB>, loopback, portable_checks>;
  static Model trained, mine;
  trained.weight[999][99] = 1;
  static net::downloader owner;
  const auto ref = owner.add_tensors(trained);
  if (!ref) return 1;
  const auto done = net::download_tensors(owner, *ref, mine);
  if (!done) return 1;
  std::printf("%s: CRC32C of 123456789 is %08llx, %llu damaged chunks\n", to_string(done->outcome).data(),
              static_cast<unsigned long long>(known.digest()), static_cast<unsigned long long>(done->damaged));
  return mine.weight[999][99] == 1 ? 0 : 1;
}
