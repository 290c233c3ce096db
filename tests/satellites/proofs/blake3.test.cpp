// BLAKE3: the values of another implementation, however the input is cut and however many chunks are hashed at a time.
#include <tensorpull/satellites/proofs/blake3_lanes.hpp>

#include "support/random.hpp"

#include <gtest/gtest.h>

#include <string>

namespace blake3_test {

using namespace test;

std::string hex(const tp::blake3_value& v) {
  std::string out;
  for (const std::byte b : v)
    for (const unsigned shift : {4u, 0u}) out += "0123456789abcdef"[std::to_integer<unsigned>(b) >> shift & 15];
  return out;
}
/// The bytes 0, 1, ... 250, 0, ... of BLAKE3's own test vectors.
byte_vector counted(std::size_t n) {
  byte_vector out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<std::byte>(i % 251);
  return out;
}
template <class Hash>
tp::blake3_value value_of(const_byte_span bytes, generator& cut) {
  Hash h;
  while (!bytes.empty()) {
    const auto n = static_cast<std::size_t>(1 + cut.below(cut.chance(0.5) ? 100 : 200'000));
    h.update(bytes.first(std::min(n, bytes.size())));
    bytes = bytes.subspan(std::min(n, bytes.size()));
  }
  return h.value();
}

struct known {
  std::size_t bytes;
  const char* digest;
};
constexpr known table[]{
    {0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"},
    {1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"},
    {63, "e9bc37a594daad83be9470df7f7b3798297c3d834ce80ba85d6e207627b7db7b"},
    {64, "4eed7141ea4a5cd4b788606bd23f46e212af9cacebacdc7d1f4c6dc7f2511b98"},
    {65, "de1e5fa0be70df6d2be8fffd0e99ceaa8eb6e8c93a63f2d8d1c30ecb6b263dee"},
    {1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11"},
    {1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"},
    {1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"},
    {2048, "e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a"},
    {2049, "5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030"},
    {3072, "b98cb0ff3623be03326b373de6b9095218513e64f1ee2edd2525c7ad1e5cffd2"},
    {3073, "7124b49501012f81cc7f11ca069ec9226cecb8a2c850cfe644e327d22d3e1cd3"},
    {16384, "f875d6646de28985646f34ee13be9a576fd515f76b5b0a26bb324735041ddde4"},
    {16385, "1dabe216be2578830263b049de1639f39f05a4da616b9b78c7a5e4e41662fd1f"},
    {31744, "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47"},
    {65536, "68d647e619a930e7b1082f74f334b0c65a315725569bdc123f0ee11881717bfe"},
    {65537, "7c99f9840a73dfcb6e5bfe4ff6d1558acab7e015640790c26411818bdbe17eca"},
    {102400, "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085"},
    {262144, "d57dc906e20d3fd326ffaa85535500486f46a0979f5a323f028dcabfd381fd4a"},
    {1000000, "5e82c663d164c54e4fcdfcd70e3ca464662228bdbad45cce2e0c2bff999064ef"},
};

TEST(Blake3, Has_the_published_values) {
  generator cut(1);
  for (const known& k : table) {
    const byte_vector bytes = counted(k.bytes);
    EXPECT_EQ(hex(value_of<tp::blake3_hash>(bytes, cut)), k.digest) << k.bytes;
    EXPECT_EQ(hex(value_of<tp::blake3_lanes>(bytes, cut)), k.digest) << k.bytes;
    EXPECT_EQ(hex(value_of<tp::lean_blake3<10>>(bytes, cut)), k.digest) << k.bytes;
  }
}
constexpr auto in_constant_evaluation = [] {
  tp::blake3_hash h;
  const std::array<std::byte, 65> bytes{};
  h.update(bytes);
  return h.value();
}();
TEST(Blake3, Is_the_same_in_constant_evaluation) {
  tp::blake3_lanes h;
  h.update(byte_vector(65));
  EXPECT_EQ(h.value(), in_constant_evaluation);
}

using namespace tp::detail::blake3;
using kernel = void (*)(words&, const std::byte*, std::size_t, std::uint64_t) noexcept;

TEST(Blake3, Each_vector_width_agrees_with_one_chunk_at_a_time) {
  std::vector<kernel> kernels;
#if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  kernels.push_back(subtree_4);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) kernels.push_back(subtree_8);
  if (__builtin_cpu_supports("avx512f")) kernels.push_back(subtree_16);
#endif
#endif
  generator random(2);
  const byte_vector bytes = random.bytes(64 * chunk_bytes);
  for (std::size_t n = 1; n <= 64; n *= 2)
    for (const std::uint64_t first :
         {std::uint64_t{0}, std::uint64_t{64}, (std::uint64_t{1} << 32) - 64, std::uint64_t{1} << 40}) {
      tp::basic_blake3<by_chunks> one(first);
      one.update(const_byte_span(bytes).first(n * chunk_bytes));
      for (const kernel k : kernels) {
        words out{};
        k(out, bytes.data(), n, first);
        EXPECT_EQ(bytes_of(out), one.chaining_value()) << n << " from " << first;
      }
    }
}

TEST(Blake3, An_input_of_whole_chunks_has_one_value_however_it_is_cut) {
  generator random(4);
  const byte_vector bytes = random.bytes(256 * chunk_bytes);
  for (const std::size_t chunks : {1u, 2u, 3u, 4u, 7u, 16u, 63u, 64u, 65u, 96u, 128u, 192u, 255u, 256u}) {
    const auto some = const_byte_span(bytes).first(chunks * chunk_bytes);
    tp::blake3_hash one;
    for (std::size_t at = 0; at < some.size(); at += 100)
      one.update(some.subspan(at, std::min<std::size_t>(100, some.size() - at)));
    for (const std::size_t first :
         {std::size_t{0}, std::size_t{1}, chunk_bytes, 2 * chunk_bytes, some.size() / 2, some.size() - 1}) {
      if (first > some.size()) continue;
      tp::blake3_lanes h;
      h.update(some.first(first));
      const auto copy = h;
      h.update(some.subspan(first));
      EXPECT_EQ(h.value(), one.value()) << chunks << ' ' << first;
      tp::lean_blake3<8> lean;
      lean.update(some.first(first));
      lean.update(some.subspan(first));
      EXPECT_EQ(lean.value(), one.value());
      (void)copy.value();
      tp::blake3_lanes later = copy;
      later.update({});
      later.update(some.subspan(first));
      EXPECT_EQ(later.value(), one.value());
    }
  }
}
TEST(Blake3, A_subtree_hashes_as_the_whole_does_there) {
  generator random(3);
  const byte_vector bytes = random.bytes(300'000);
  for (std::size_t group = 1024; group <= 262'144; group *= 2) {
    left_nodes<20> left;
    tp::lean_blake3<8> lean;
    std::size_t at = 0, before = 0;
    words last{};
    for (; at < bytes.size(); at += group, ++before) {
      if (before > 0) left.push(last, before);
      tp::blake3_lanes h(at / chunk_bytes);
      h.update(const_byte_span(bytes).subspan(at, std::min(group, bytes.size() - at)));
      last = words_of(h.chaining_value());
      lean.reset(at / chunk_bytes);
      lean.update(const_byte_span(bytes).subspan(at, std::min(group, bytes.size() - at)));
      EXPECT_EQ(lean.chaining_value(), h.chaining_value());
    }
    tp::blake3_hash whole;
    whole.update(bytes);
    EXPECT_EQ(bytes_of(left.over(last, root)), whole.value()) << group;
  }
}

}  // namespace blake3_test
