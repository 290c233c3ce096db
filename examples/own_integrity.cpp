// An integrity policy of your own, with a hash that the library lacks: a CRC-64 of each chunk, as xz has it, and the
// library's portable XXH3-64 for the whole image.
#include <tensorpull/integrity/concept.hpp>
#include <tensorpull/tensorpull.hpp>

#include <array>
#include <cstdio>

using namespace tensorpull;

struct Model {
  float weight[1000][100];
};
BOOST_HANA_ADAPT_STRUCT(Model, weight);

/// A hash of chunks: CRC-64/XZ with a table of 2 KiB. `kind` is its number in frames: those from 128 on are for hashes
/// of your own. Both ends need it, and an owner that does not have it refuses (`unsupported_request`).
class crc64 {
 public:
  static constexpr auto kind = static_cast<digest_kind>(128);

  void update(std::span<const std::byte> bytes) noexcept {
    for (const std::byte b : bytes) state_ = state_ >> 8 ^ table[(state_ ^ static_cast<std::uint64_t>(b)) & 0xff];
  }
  std::uint64_t digest() const noexcept { return ~state_; }

 private:
  static constexpr auto table = [] {
    std::array<std::uint64_t, 256> made{};
    for (std::uint64_t i = 0; i < 256; ++i) {
      std::uint64_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = (c & 1) != 0 ? c >> 1 ^ 0xc96c5795d7870f42 : c >> 1;
      made[i] = c;
    }
    return made;
  }();
  std::uint64_t state_ = ~std::uint64_t{0};
};

/// The policy: each chunk is checked before the consumer's chunk() is called, and the whole image against the published
/// version, which is its XXH3-64.
struct careful_checks {
  using is_integrity_policy = void;
  using hash_type = xxh3_64;
  using chunk_hash_type = crc64;
  static constexpr bool whole = true;
  static constexpr bool per_chunk = true;
};
static_assert(hash<crc64> && integrity_policy<careful_checks>);

int main() {
  crc64 known;
  known.update(std::as_bytes(std::span("123456789", 9)));
  using net = pipeline<raw_tensors<Model>, fixed_bytes<16_KiB>, loopback, careful_checks>;
  static Model trained, mine;
  trained.weight[999][99] = 1;
  static net::downloader owner;
  const auto ref = owner.add_tensors(trained);
  if (!ref) return 1;
  const auto done = net::download_tensors(owner, *ref, mine);
  if (!done) return 1;
  std::printf("%s: CRC-64 of 123456789 is %016llx, %llu damaged chunks\n", to_string(done->outcome).data(),
              static_cast<unsigned long long>(known.digest()), static_cast<unsigned long long>(done->damaged));
  return mine.weight[999][99] == 1 ? 0 : 1;
}
