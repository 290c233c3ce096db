// The microcontroller's verifier of signatures, on this machine: RFC 8032, and OpenSSL's word for keys, messages and
// signatures of any kind.
#include <jobs/microcontroller/firmware/ed25519.hpp>

#include <tensorpull/satellites/proofs/signed_reference.hpp>

#include "support/random.hpp"

#include <gtest/gtest.h>

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace ed25519_test {

using namespace test;
using microcontroller::monocypher_ed25519;
using microcontroller::sha512;
using key_type = std::array<std::byte, 32>;
using signature_type = std::array<std::byte, 64>;

static_assert(tp::ed25519_verifier<monocypher_ed25519>);

constexpr bool is_abc() {
  const std::byte abc[]{std::byte{'a'}, std::byte{'b'}, std::byte{'c'}};
  sha512 hash;
  hash.update(abc);
  const auto value = hash.value();
  return value[0] == std::byte{0xdd} && value[1] == std::byte{0xaf} && value[63] == std::byte{0x9f};
}
static_assert(is_abc());

template <std::size_t Bytes>
std::array<std::byte, Bytes> from_hex(std::string_view digits) {
  std::array<std::byte, Bytes> out{};
  EXPECT_TRUE(tp::detail::take_hex(digits, out));
  return out;
}
std::vector<std::byte> random_bytes(generator& dice, std::size_t n) {
  std::vector<std::byte> out(n);
  for (std::byte& b : out) b = static_cast<std::byte>(dice());
  return out;
}
/// Whether it is right, on which both agree.
bool right(const key_type& key, std::span<const std::byte> message, const signature_type& signature) {
  // copies at odd addresses, and of their own lengths: a sanitizer sees who reads behind them
  std::vector<std::byte> k(1), s(1);
  k.insert(k.end(), key.begin(), key.end());
  s.insert(s.end(), signature.begin(), signature.end());
  const std::vector<std::byte> m(message.begin(), message.end());
  const bool here = monocypher_ed25519{}(std::span<const std::byte, 32>(k.data() + 1, 32), m,
                                         std::span<const std::byte, 64>(s.data() + 1, 64));
  EXPECT_EQ(here, tp::detail::by_openssl{}(key, message, signature));
  return here;
}
/// A key of OpenSSL's, and its signatures.
class signing {
 public:
  explicit signing(std::span<const std::byte> seed)
      : key_(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr,
                                          reinterpret_cast<const unsigned char*>(seed.data()), seed.size())) {
    std::size_t n = shared.size();
    EXPECT_EQ(EVP_PKEY_get_raw_public_key(key_.get(), reinterpret_cast<unsigned char*>(shared.data()), &n), 1);
  }
  signature_type of(std::span<const std::byte> message) const {
    signature_type out{};
    std::size_t n = out.size();
    const tp::detail::signing_ptr context(EVP_MD_CTX_new());
    EXPECT_EQ(EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_.get()), 1);
    EXPECT_EQ(EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(out.data()), &n,
                             reinterpret_cast<const unsigned char*>(message.data()), message.size()),
              1);
    return out;
  }
  key_type shared{};

 private:
  tp::detail::key_ptr key_;
};

TEST(Ed25519, SHA_512_is_that_of_OpenSSL_for_each_length_around_its_blocks) {
  generator dice{1};
  for (std::size_t length = 0; length < 400; ++length) {
    const auto bytes = random_bytes(dice, length);
    std::array<std::byte, 64> expected{};
    ASSERT_EQ(EVP_Digest(bytes.data(), length, reinterpret_cast<unsigned char*>(expected.data()), nullptr, EVP_sha512(),
                         nullptr),
              1);
    sha512 hash;
    const std::size_t cut = length == 0 ? 0 : dice() % length;
    hash.update(std::span(bytes).first(cut));
    hash.update(std::span(bytes).subspan(cut));
    ASSERT_EQ(hash.value(), expected) << length;
  }
}
TEST(Ed25519, Signatures_of_RFC_8032_are_right) {
  sha512 hash;
  hash.update(std::as_bytes(std::span("abc", 3)));
  const auto of_abc = hash.value();
  const auto byte = from_hex<1>("72");
  const auto two = from_hex<2>("af82");
  EXPECT_TRUE(
      right(from_hex<32>("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"), {},
            from_hex<64>("e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39"
                         "701cf9b46bd25bf5f0595bbe24655141438e7a100b")));
  EXPECT_TRUE(
      right(from_hex<32>("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"), byte,
            from_hex<64>("92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f36"
                         "13d0f11d8c387b2eaeb4302aeeb00d291612bb0c00")));
  EXPECT_TRUE(
      right(from_hex<32>("fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025"), two,
            from_hex<64>("6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f7"
                         "60984dc6594a7c15e9716ed28dc027beceea1ec40a")));
  EXPECT_TRUE(
      right(from_hex<32>("ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf"), of_abc,
            from_hex<64>("dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7"
                         "c66431e0303dca179c138ac17ad9bef1177331a704")));
}
TEST(Ed25519, A_bit_of_the_key_the_message_or_the_signature_that_is_another_makes_it_wrong) {
  generator dice{2};
  const auto message = random_bytes(dice, 23);
  const signing by(random_bytes(dice, 32));
  const signature_type signature = by.of(message);
  ASSERT_TRUE(right(by.shared, message, signature));
  const auto flipped = [](auto bytes, std::size_t bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    return bytes;
  };
  for (std::size_t bit = 0; bit < 512; ++bit) EXPECT_FALSE(right(by.shared, message, flipped(signature, bit))) << bit;
  for (std::size_t bit = 0; bit < 256; ++bit) EXPECT_FALSE(right(flipped(by.shared, bit), message, signature)) << bit;
  for (std::size_t bit = 0; bit < 8 * 23; ++bit)
    EXPECT_FALSE(right(by.shared, flipped(message, bit), signature)) << bit;
  EXPECT_FALSE(right(by.shared, std::span(message).first(22), signature));
}
TEST(Ed25519, Of_any_keys_and_messages_it_has_the_word_of_OpenSSL) {
  generator dice{3};
  for (int i = 0; i < 200; ++i) {
    const auto message = random_bytes(dice, dice() % 600);
    const signing by(random_bytes(dice, 32)), other(random_bytes(dice, 32));
    const signature_type signature = by.of(message);
    EXPECT_TRUE(right(by.shared, message, signature));
    EXPECT_FALSE(right(other.shared, message, signature));
    // bytes of which half are no point of the curve
    key_type any_key{};
    std::ranges::copy(random_bytes(dice, 32), any_key.begin());
    signature_type any = signature;
    EXPECT_FALSE(right(any_key, message, signature));
    std::ranges::copy(random_bytes(dice, 32), any.begin());
    EXPECT_FALSE(right(by.shared, message, any));
  }
}
TEST(Ed25519, A_second_half_that_is_not_below_the_order_of_the_group_is_wrong) {
  const auto order = from_hex<32>("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010");
  generator dice{4};
  for (int i = 0; i < 20; ++i) {
    const auto message = random_bytes(dice, 40);
    const signing by(random_bytes(dice, 32));
    signature_type signature = by.of(message);
    // the same number, for the curve: S, S + L, S + 2 L, ... as long as they fit
    for (int times = 0; times < 15; ++times) {
      EXPECT_EQ(right(by.shared, message, signature), times == 0) << times;
      unsigned carry = 0;
      for (std::size_t k = 0; k < 32; ++k) {
        carry += std::to_integer<unsigned>(signature[32 + k]) + std::to_integer<unsigned>(order[k]);
        signature[32 + k] = static_cast<std::byte>(carry);
        carry >>= 8;
      }
    }
  }
  signature_type none{};
  std::ranges::copy(order, none.begin() + 32);
  EXPECT_FALSE(right(signing(random_bytes(dice, 32)).shared, {}, none));
}
TEST(Ed25519, A_point_of_low_order_in_a_signature_of_the_keys_own_holder_changes_nothing) {
  // R = rB + T, where 8 T = 0, and S = r + ha: both answers are allowed, and OpenSSL's is the other
  const auto key = from_hex<32>("2cb07af2cac3befc8d41cb86b4976a9d7bcac81b2ad5d6c28f611dacb9ef599d");
  const auto signature = from_hex<64>(
      "32b1f55cf4ebaa5fb6b6eda1457c9214b7ed051a470e3f5e7ea48240a2de9d1e718da8ddb6824f1f4d"
      "b5ba366bfe7a92d36331a950ea1f972e3d46183964f406");
  const auto message = std::as_bytes(std::span("abc", 3));
  EXPECT_TRUE(monocypher_ed25519{}(key, message, signature));
  EXPECT_FALSE(tp::detail::by_openssl{}(key, message, signature));
}

}  // namespace ed25519_test
