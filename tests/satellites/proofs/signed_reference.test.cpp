// A reference that a key vouches for: exactly its text, for one federation, not before a round and until a time.
#include <tensorpull/satellites/proofs/signed_reference.hpp>

#include "support/random.hpp"
#include "support/results.hpp"

#include <gtest/gtest.h>

#include <openssl/evp.h>

#include <string>

namespace signed_reference_test {

using namespace test;

struct pair_of_keys {
  std::string secret, shared;  // PEM; base64
};
pair_of_keys make_keys(int type = EVP_PKEY_ED25519) {
  EVP_PKEY* raw = nullptr;
  EVP_PKEY_CTX* context = EVP_PKEY_CTX_new_id(type, nullptr);
  EXPECT_EQ(EVP_PKEY_keygen_init(context), 1);
  EXPECT_EQ(EVP_PKEY_keygen(context, &raw), 1);
  EVP_PKEY_CTX_free(context);
  const tp::detail::key_ptr key(raw);
  const auto text = [](BIO* from) {
    char* at = nullptr;
    const long n = BIO_get_mem_data(from, &at);
    std::string out(at, static_cast<std::size_t>(n));
    BIO_free(from);
    return out;
  };
  BIO* out = BIO_new(BIO_s_mem());
  EXPECT_EQ(PEM_write_bio_PrivateKey(out, key.get(), nullptr, nullptr, 0, nullptr, nullptr), 1);
  pair_of_keys made;
  made.secret = text(out);
  out = BIO_new(BIO_s_mem());
  EXPECT_EQ(PEM_write_bio_PUBKEY(out, key.get()), 1);
  made.shared = text(out);
  made.shared = made.shared.substr(made.shared.find('\n') + 1);
  made.shared = made.shared.substr(0, made.shared.find('\n'));
  return made;
}
const pair_of_keys& ours() {
  static const pair_of_keys one = make_keys();
  return one;
}
tp::reference_claims some_claims() {
  tp::reference_claims c;
  c.of.model = {{0x0123, 0xabcd}, 77, 0xfe};
  c.of.tree = {{1, 2}, 3, 0};
  for (std::size_t i = 0; i < 32; ++i) c.of.root[i] = static_cast<std::byte>(i * 7);
  c.of.image_bytes = 1'000'000;
  c.federation = "hospitals";
  c.round = 12;
  c.expires = 2'000'000'000;
  c.note = "best so far: 0.93";
  return c;
}
std::string signed_by(const pair_of_keys& who, const tp::reference_claims& claims) {
  const auto key = tp::signing_key::read({.text = who.secret});
  EXPECT_TRUE(succeeded(key));
  const auto text = tp::sign_reference(claims, *key);
  EXPECT_TRUE(succeeded(text));
  return *text;
}
tp::trusted_keys keys_of(const std::string& text) {
  auto keys = tp::trusted_keys::parse(text);
  EXPECT_TRUE(succeeded(keys));
  return std::move(*keys);
}
const tp::reference_demands now{.federation = "hospitals", .least_round = 12, .now = 1'900'000'000};
testing::AssertionResult refused(const tp::result<tp::reference_claims>& r, errc code, std::string_view name) {
  if (!r && r.error().code == code && r.error().name.view() == name) return testing::AssertionSuccess();
  return testing::AssertionFailure() << (r ? std::string("taken") : std::string(describe(r.error()).view()));
}

TEST(SignedReference, Has_what_was_signed) {
  const auto keys = keys_of("# of our federation\n\nhospitals " + ours().shared + "\r\n");
  const std::string text = signed_by(ours(), some_claims());
  const auto c = tp::verify_reference(text, keys, now);
  ASSERT_TRUE(succeeded(c)) << text;
  const auto as = some_claims();
  EXPECT_EQ(c->of.model, as.of.model);
  EXPECT_EQ(c->of.tree, as.of.tree);
  EXPECT_EQ(c->of.root, as.of.root);
  EXPECT_EQ(c->of.image_bytes, as.of.image_bytes);
  EXPECT_EQ(c->federation, as.federation);
  EXPECT_EQ(c->round, as.round);
  EXPECT_EQ(c->expires, as.expires);
  EXPECT_EQ(c->note, as.note);
  auto empty = some_claims();
  empty.note.clear();
  EXPECT_TRUE(succeeded(tp::verify_reference(signed_by(ours(), empty), keys, now)));
}
TEST(SignedReference, Of_another_key_federation_round_or_time_it_is_refused_by_name) {
  const auto other = make_keys();
  const std::string text = signed_by(ours(), some_claims());
  EXPECT_TRUE(refused(tp::verify_reference(text, keys_of(""), now), errc::not_authenticated, "signature"));
  EXPECT_TRUE(refused(tp::verify_reference(text, keys_of("hospitals " + other.shared), now), errc::not_authenticated,
                      "signature"));
  EXPECT_TRUE(
      refused(tp::verify_reference(text, keys_of("banks " + ours().shared), now), errc::not_authenticated, "signature"))
      << "the key of one federation does not sign for another";
  EXPECT_TRUE(refused(tp::verify_reference(text, keys_of("hospitals " + ours().shared + " revoked"), now),
                      errc::not_authenticated, "revoked"));
  EXPECT_TRUE(
      refused(tp::verify_reference(
                  text, keys_of("hospitals " + ours().shared + "\nhospitals " + ours().shared + " revoked"), now),
              errc::not_authenticated, "revoked"));
  // a key that was stolen is, whatever it was trusted for
  EXPECT_TRUE(refused(
      tp::verify_reference(text, keys_of("hospitals " + ours().shared + "\nbanks " + ours().shared + " revoked"), now),
      errc::not_authenticated, "revoked"));
  const auto keys = keys_of("hospitals " + other.shared + "\nhospitals " + ours().shared + "\nbanks " + other.shared);
  EXPECT_TRUE(succeeded(tp::verify_reference(text, keys, now))) << "while one key replaces another";
  auto demands = now;
  demands.federation = "banks";
  EXPECT_TRUE(refused(tp::verify_reference(text, keys, demands), errc::not_permitted, "federation"));
  demands = now;
  demands.least_round = 13;
  EXPECT_TRUE(refused(tp::verify_reference(text, keys, demands), errc::not_permitted, "round"));
  demands = now;
  demands.now = 1'999'999'999;
  EXPECT_TRUE(succeeded(tp::verify_reference(text, keys, demands)));
  demands.now = 2'000'000'000;
  EXPECT_TRUE(refused(tp::verify_reference(text, keys, demands), errc::not_permitted, "expires"));
  EXPECT_TRUE(refused(tp::verify_reference(text, keys, {}), errc::not_permitted, "expires"))
      << "nobody has looked at a clock";
}
TEST(SignedReference, No_other_text_is_taken) {
  const auto keys = keys_of("hospitals " + ours().shared);
  const std::string text = signed_by(ours(), some_claims());
  const auto taken = [&](const std::string& t) { return tp::verify_reference(t, keys, now).has_value(); };
  ASSERT_TRUE(taken(text));
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const char c : {'0', 'f', 'A', ' ', '\n', '\0', '\x7f'}) {
      std::string changed = text;
      if (changed[i] == c) continue;
      changed[i] = c;
      EXPECT_FALSE(taken(changed)) << i << ' ' << c;
    }
    EXPECT_FALSE(taken(text.substr(0, i)));
    EXPECT_FALSE(taken(text.substr(0, i) + text.substr(i + 1)));
    EXPECT_FALSE(taken(text.substr(0, i) + "0" + text.substr(i)));
  }
  EXPECT_FALSE(taken(text + "\n"));
  EXPECT_FALSE(taken(text + text));
  EXPECT_EQ(code_of(tp::verify_reference(std::string(1 << 20, 'a'), keys, now)), errc::bad_file);
  // the lines of one reference and the signature of another
  auto later = some_claims();
  later.round = 13;
  const std::string next = signed_by(ours(), later);
  EXPECT_FALSE(taken(next.substr(0, next.rfind("signature ")) + text.substr(text.rfind("signature "))));
}
TEST(SignedReference, Claims_of_another_form_are_not_signed) {
  const auto key = tp::signing_key::read({.text = ours().secret});
  const auto refuses = [&](auto change) {
    auto c = some_claims();
    change(c);
    return code_of(tp::sign_reference(c, *key)) == errc::invalid_argument;
  };
  EXPECT_TRUE(refuses([](auto& c) { c.federation.clear(); }));
  EXPECT_TRUE(refuses([](auto& c) { c.federation = std::string(256, 'a'); }));
  EXPECT_TRUE(refuses([](auto& c) { c.federation = "two words"; }));
  EXPECT_TRUE(refuses([](auto& c) { c.federation = "a\nround 99"; }));
  EXPECT_TRUE(refuses([](auto& c) { c.note = "a\nsignature 00"; }));
  EXPECT_TRUE(refuses([](auto& c) { c.note = std::string(1025, 'a'); }));
  EXPECT_TRUE(refuses([](auto& c) { c.of.model.version = 0; }));
}
TEST(SignedReference, Keys_of_another_kind_and_files_that_are_none) {
  EXPECT_EQ(code_of(tp::signing_key::read({.text = make_keys(EVP_PKEY_ED448).secret})), errc::bad_file);
  EXPECT_EQ(code_of(tp::signing_key::read({.text = std::string_view("nothing")})), errc::bad_file);
  // nobody is asked for a password at the terminal
  const std::string locked =
      "-----BEGIN ENCRYPTED PRIVATE KEY-----\n"
      "MIGbMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAjr/u0YHJ2amgICCAAw\n"
      "DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEMUdC1XBdibzIt2ml6XP7v8EQFHS\n"
      "+jZA+c6nSEa5OJ2474qm8kGha4UcqRTRwy+oOMoPYe8jN1VruzX/QNiZaUZkqU3k\n"
      "PMbFnCvr0DnsDLlV7kE=\n"
      "-----END ENCRYPTED PRIVATE KEY-----\n";
  EXPECT_EQ(code_of(tp::signing_key::read({.text = locked})), errc::bad_file);
  const std::string right = "hospitals " + ours().shared;
  for (const std::string& wrong : {std::string("hospitals"), " " + right, right + "x",
                                   right.substr(0, right.size() - 1), "hospitals " + make_keys(EVP_PKEY_ED448).shared,
                                   right + " revoke", std::string("hospitals ") + std::string(60, '!'),
                                   "hospitals " + std::string(59, 'A') + "=", "\xef\xbb\xbf" + right}) {
    const auto keys = tp::trusted_keys::parse("# first\n" + wrong + "\n");
    ASSERT_FALSE(keys) << wrong;
    EXPECT_EQ(keys.error().code, errc::bad_file);
    EXPECT_EQ(keys.error().at, 2u);
  }
}

}  // namespace signed_reference_test
