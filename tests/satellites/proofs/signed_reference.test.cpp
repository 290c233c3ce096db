// A reference that a key vouches for: exactly its text, for one federation, not before a round and until a time. A host
// and a small machine, here with OpenSSL as its verifier, read each text of this file, and must agree.
#include <tensorpull/satellites/proofs/signed_reference.hpp>

#include "support/random.hpp"
#include "support/results.hpp"

#include <gtest/gtest.h>

#include <openssl/evp.h>

#include <array>
#include <cstring>
#include <span>
#include <string>
#include <vector>

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
/// A host's keys, and a small machine's, of a federation's file.
struct both_keys {
  explicit both_keys(std::string text) : text_(std::move(text)), host(parsed()) {
    for (std::size_t at = 0; at < text_.size();) {
      const std::size_t end = std::min(text_.find_first_of("\r\n", at), text_.size());
      if (end != at && text_[at] != '#') {
        const auto key = tp::parse_trusted_key(std::string_view(text_).substr(at, end - at));
        EXPECT_TRUE(succeeded(key));
        device.push_back(*key);
      }
      at = end + 1;
    }
  }
  both_keys(const both_keys&) = delete;

 private:
  tp::trusted_keys parsed() const {
    auto keys = tp::trusted_keys::parse(text_);
    EXPECT_TRUE(succeeded(keys));
    return std::move(*keys);
  }
  std::string text_;

 public:
  tp::trusted_keys host;
  std::vector<tp::trusted_key> device;
};
const auto as_text = [](const auto& c) {
  return tp::detail::claims_text({c.of, std::string(c.federation), c.round, c.expires, std::string(c.note)});
};
/// The claims, if both take the text.
tp::result<tp::reference_claims> verified(const std::string& text, const both_keys& keys,
                                          const tp::reference_demands& demands) {
  auto on_host = tp::verify_reference(text, keys.host, demands);
  tp::detail::by_openssl verifier;
  // a copy of its own length, so that a sanitizer sees who reads behind it
  const std::vector<char> flash(text.begin(), text.end());
  const auto here = tp::verify_reference(std::string_view(flash.data(), flash.size()), keys.device, demands, verifier);
  EXPECT_EQ(on_host.has_value(), here.has_value());
  if (on_host && here) {
    EXPECT_EQ(as_text(*on_host), as_text(*here));
    return on_host;
  }
  if (on_host) return tp::failure(here.error());
  if (!here) {
    EXPECT_EQ(on_host.error().code, here.error().code);
    EXPECT_EQ(on_host.error().name.view(), here.error().name.view());
    EXPECT_EQ(on_host.error().at, here.error().at);
  }
  return on_host;
}
const tp::reference_demands now{.federation = "hospitals", .least_round = 12, .now = 1'900'000'000};
testing::AssertionResult refused(const tp::result<tp::reference_claims>& r, errc code, std::string_view name) {
  if (!r && r.error().code == code && r.error().name.view() == name) return testing::AssertionSuccess();
  return testing::AssertionFailure() << (r ? std::string("taken") : std::string(describe(r.error()).view()));
}

TEST(SignedReference, Has_what_was_signed) {
  const both_keys keys("# of our federation\n\nhospitals " + ours().shared + "\r\n");
  const std::string text = signed_by(ours(), some_claims());
  const auto c = verified(text, keys, now);
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
  EXPECT_TRUE(succeeded(verified(signed_by(ours(), empty), keys, now)));
}
TEST(SignedReference, Of_another_key_federation_round_or_time_it_is_refused_by_name) {
  const auto other = make_keys();
  const std::string text = signed_by(ours(), some_claims());
  EXPECT_TRUE(refused(verified(text, both_keys(""), now), errc::not_authenticated, "signature"));
  EXPECT_TRUE(
      refused(verified(text, both_keys("hospitals " + other.shared), now), errc::not_authenticated, "signature"));
  EXPECT_TRUE(refused(verified(text, both_keys("banks " + ours().shared), now), errc::not_authenticated, "signature"))
      << "the key of one federation does not sign for another";
  EXPECT_TRUE(refused(verified(text, both_keys("hospitals " + ours().shared + " revoked"), now),
                      errc::not_authenticated, "revoked"));
  EXPECT_TRUE(refused(
      verified(text, both_keys("hospitals " + ours().shared + "\nhospitals " + ours().shared + " revoked"), now),
      errc::not_authenticated, "revoked"));
  // a key that was stolen is, whatever it was trusted for
  EXPECT_TRUE(
      refused(verified(text, both_keys("hospitals " + ours().shared + "\nbanks " + ours().shared + " revoked"), now),
              errc::not_authenticated, "revoked"));
  const both_keys keys("hospitals " + other.shared + "\nhospitals " + ours().shared + "\nbanks " + other.shared);
  EXPECT_TRUE(succeeded(verified(text, keys, now))) << "while one key replaces another";
  auto demands = now;
  demands.federation = "banks";
  EXPECT_TRUE(refused(verified(text, keys, demands), errc::not_permitted, "federation"));
  demands = now;
  demands.least_round = 13;
  EXPECT_TRUE(refused(verified(text, keys, demands), errc::not_permitted, "round"));
  demands = now;
  demands.now = 1'999'999'999;
  EXPECT_TRUE(succeeded(verified(text, keys, demands)));
  demands.now = 2'000'000'000;
  EXPECT_TRUE(refused(verified(text, keys, demands), errc::not_permitted, "expires"));
  EXPECT_TRUE(refused(verified(text, keys, {}), errc::not_permitted, "expires")) << "nobody has looked at a clock";
}
TEST(SignedReference, No_other_text_is_taken) {
  const both_keys keys("hospitals " + ours().shared);
  const std::string text = signed_by(ours(), some_claims());
  const auto taken = [&](const std::string& t) { return verified(t, keys, now).has_value(); };
  ASSERT_TRUE(taken(text));
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (unsigned c = 0; c < 256; ++c) {
      std::string changed = text;
      changed[i] = static_cast<char>(c);
      if (changed == text) continue;
      EXPECT_FALSE(taken(changed)) << i << ' ' << c;
    }
    EXPECT_FALSE(taken(text.substr(0, i)));
    EXPECT_FALSE(taken(text.substr(0, i) + text.substr(i + 1)));
    EXPECT_FALSE(taken(text.substr(0, i) + "0" + text.substr(i)));
  }
  EXPECT_FALSE(taken(text + "\n"));
  EXPECT_FALSE(taken(text + text));
  EXPECT_EQ(code_of(verified(std::string(1 << 20, 'a'), keys, now)), errc::bad_file);
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
    EXPECT_EQ(code_of(tp::parse_trusted_key(wrong)), errc::bad_file) << wrong;
  }
  const std::string base64 = ours().shared;
  for (std::size_t i = 0; i < base64.size(); ++i) {
    EXPECT_FALSE(tp::parse_trusted_key("hospitals " + base64.substr(0, i)));
    for (unsigned c = 0; c < 256; ++c) {
      std::string changed = base64;
      changed[i] = static_cast<char>(c);
      const std::string line = "hospitals " + changed;
      const auto read = tp::parse_trusted_key(line);
      if (!read) continue;
      EXPECT_TRUE(i >= 16 || changed == base64) << changed;
      // what is read is what is written: no two texts are one key
      std::array<unsigned char, 48> again{};
      std::memcpy(again.data(), "\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00", 12);
      std::memcpy(again.data() + 12, read->key.data(), 32);
      std::array<unsigned char, 65> spelled{};
      EVP_EncodeBlock(spelled.data(), again.data(), 44);
      EXPECT_EQ(changed, reinterpret_cast<const char*>(spelled.data()));
    }
  }
}

/// Of RFC 8032, 7.1, test 1.
constexpr auto published_key = *tp::parse_trusted_key(
    "hospitals MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo= revoked");
static_assert(published_key.federation == "hospitals" && published_key.revoked);
static_assert(tp::detail::hex_digits(published_key.key).view() ==
              "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");

TEST(SignedReference, The_verifier_of_a_small_machine_is_asked_about_the_keys_that_matter_and_decides) {
  struct asked {
    bool answer = true;
    std::vector<std::string> of{};
    bool operator()(std::span<const std::byte, 32> key, std::span<const std::byte> message,
                    std::span<const std::byte, 64> signature) noexcept {
      of.push_back(std::to_string(std::to_integer<int>(key[0])) + ' ' + std::to_string(message.size()) + ' ' +
                   std::to_string(std::to_integer<int>(signature[0])));
      return answer;
    }
  };
  static_assert(tp::ed25519_verifier<asked>);
  static_assert(!tp::ed25519_verifier<int (*)(std::span<const std::byte, 32>, std::span<const std::byte>,
                                              std::span<const std::byte, 64>) noexcept>);
  std::string text = signed_by(ours(), some_claims());
  const std::size_t lines = text.rfind("signature ");
  text[lines + 10] = '7', text[lines + 11] = 'b';
  std::array<tp::trusted_key, 3> keys{{{"hospitals"}, {"banks"}, {"banks", {}, true}}};
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i].key[0] = static_cast<std::byte>(i);
  const std::string rest = ' ' + std::to_string(lines) + " 123";

  asked verifier;
  EXPECT_EQ(tp::verify_reference(text, std::span(keys).first(2), now, verifier)->round, 12u);
  EXPECT_EQ(verifier.of, (std::vector{"0" + rest}));
  const auto revoked = tp::verify_reference(text, keys, now, verifier);
  EXPECT_EQ(revoked.error().name.view(), "revoked");
  EXPECT_EQ(verifier.of, (std::vector{"0" + rest, "0" + rest, "2" + rest}));
  const auto none = tp::verify_reference(text, keys, now, asked{.answer = false});
  EXPECT_EQ(none.error().name.view(), "signature");
  EXPECT_EQ(code_of(tp::verify_reference(text, {}, now, asked{})), errc::not_authenticated);

  // it is never asked about a text of another form, and its answer makes none right
  verifier.of.clear();
  std::string capital = text, zeros = text;
  capital[lines + 11] = 'B';
  zeros.insert(text.find("round ") + 6, 4096, '0');
  for (const std::string& other :
       {text.substr(0, text.size() - 1), text + ' ', capital, zeros, std::string(1 << 20, 'a')})
    EXPECT_EQ(code_of(tp::verify_reference(other, keys, now, verifier)), errc::bad_file);
  EXPECT_TRUE(verifier.of.empty());
}

}  // namespace signed_reference_test
