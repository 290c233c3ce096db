// A reference that a key vouches for: what a model's bytes are, for whom, in which round and until when. With the key
// of a federation a recipient needs no other channel that it trusts. Ed25519 (RFC 8032), by OpenSSL.
#pragma once

#include <tensorpull/core/digits.hpp>
#include <tensorpull/core/ids.hpp>
#include <tensorpull/satellites/proofs/embedded_reference.hpp>
#include <tensorpull/satellites/proofs/proved_pull.hpp>
#include <tensorpull/transports/over/tls/tls_context.hpp>

#include <openssl/evp.h>
#include <openssl/pem.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensorpull {

/// The content of a signed reference.
using reference_claims = basic_reference_claims<std::string>;

namespace detail {
using signing_ptr = openssl_ptr<EVP_MD_CTX, EVP_MD_CTX_free>;

/// The text that is signed.
inline std::string claims_text(const reference_claims& c) {
  std::string text("tensorpull reference 1");
  const auto line = [&](std::string_view name, std::string_view value) {
    ((text += '\n') += name) += ' ';
    text += value;
  };
  line("federation", c.federation);
  line("round", decimal(c.round).view());
  line("expires", decimal(c.expires).view());
  line("model", to_digits(c.of.model).view());
  line("schema", hex_digits(c.of.model.fingerprint).view());
  line("tree", to_digits(c.of.tree).view());
  line("root", hex_digits(c.of.root).view());
  line("bytes", decimal(c.of.image_bytes).view());
  line("note", c.note);
  text += '\n';
  return text;
}
}  // namespace detail

/// A private key of Ed25519. Movable.
class signing_key {
 public:
  /// From PKCS #8 in PEM without a password, as `openssl genpkey -algorithm ed25519` writes it. Error: bad_file, with
  /// its name.
  static result<signing_key> read(const pem_source& from) noexcept {
    auto in = detail::open_pem(from);
    if (!in) return failure(in.error());
    std::string_view none;
    detail::key_ptr key(PEM_read_bio_PrivateKey(in->get(), nullptr, detail::give_password, &none));
    ERR_clear_error();
    if (key == nullptr || EVP_PKEY_get_id(key.get()) != EVP_PKEY_ED25519)
      return failure(errc::bad_file, 0, detail::name_of(from, "key"));
    return signing_key(std::move(key));
  }

 private:
  friend result<std::string> sign_reference(const reference_claims&, const signing_key&) noexcept;
  explicit signing_key(detail::key_ptr key) noexcept : key_(std::move(key)) {}
  detail::key_ptr key_;
};

/// The text of a signed reference: lines that anybody can read, the last with the signature over those before it.
/// Errors: invalid_argument (a claim of another form than above, or a model without a version); out_of_memory.
inline result<std::string> sign_reference(const reference_claims& claims, const signing_key& by) noexcept {
  if (!detail::has_right_sizes(claims)) return failure(errc::invalid_argument);
  try {
    std::string text = detail::claims_text(claims);
    ed25519_signature signature{};
    std::size_t size = signature.size();
    const detail::signing_ptr context(EVP_MD_CTX_new());
    if (context == nullptr || EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, by.key_.get()) != 1 ||
        EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                       reinterpret_cast<const unsigned char*>(text.data()), text.size()) != 1 ||
        size != signature.size()) {
      ERR_clear_error();
      return failure(errc::out_of_memory);
    }
    text += "signature ";
    text += detail::hex_digits(signature).view();
    text += '\n';
    return text;
  } catch (const std::bad_alloc&) {
    return failure(errc::out_of_memory);
  }
}

/// The keys whose references a recipient takes, each for one federation. Movable.
class trusted_keys {
 public:
  /// Text of a key in each line (parse_trusted_key). Empty lines, and those that begin with `#`, are skipped. Of one
  /// federation several keys may be there, while one replaces another. Error: bad_file, `at` counts the file's lines
  /// from 1.
  static result<trusted_keys> parse(std::string_view text) noexcept {
    try {
      trusted_keys made;
      for (std::size_t number = 1; !text.empty(); ++number) {
        std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (line.empty() || line[0] == '#') continue;
        const auto read = parse_trusted_key(line);
        if (!read || number > most) return failure(errc::bad_file, number);
        made.all_.push_back({std::string(read->federation), read->key, read->revoked});
      }
      return made;
    } catch (const std::bad_alloc&) {
      return failure(errc::out_of_memory);
    }
  }

 private:
  friend result<reference_claims> verify_reference(std::string_view, const trusted_keys&,
                                                   const reference_demands&) noexcept;
  static constexpr std::size_t most = 10'000;

  std::vector<basic_trusted_key<std::string>> all_;
};

namespace detail {
/// An ed25519_verifier.
struct by_openssl {
  bool out_of_memory = false;
  bool operator()(std::span<const std::byte, 32> key, std::span<const std::byte> message,
                  std::span<const std::byte, 64> signature) noexcept {
    const auto bytes = [](std::span<const std::byte> from) {
      return reinterpret_cast<const unsigned char*>(from.data());
    };
    const key_ptr with(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, bytes(key), key.size()));
    const signing_ptr context(EVP_MD_CTX_new());
    out_of_memory = out_of_memory || with == nullptr || context == nullptr;
    const bool good = !out_of_memory &&
                      EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, with.get()) == 1 &&
                      EVP_DigestVerify(context.get(), bytes(signature), signature.size(), bytes(message),
                                       message.size()) == 1;
    ERR_clear_error();
    return good;
  }
};
}  // namespace detail

/// The claims of a signed reference, if a trusted key has signed exactly this text and it meets the demands. Errors: as
/// those of a small machine (embedded_reference.hpp); out_of_memory.
inline result<reference_claims> verify_reference(std::string_view text, const trusted_keys& keys,
                                                 const reference_demands& demands) noexcept {
  detail::by_openssl verifier;
  const auto c = detail::verified_claims(text, keys.all_, demands, verifier);
  if (verifier.out_of_memory) return failure(errc::out_of_memory);
  if (!c) return failure(c.error());
  try {
    return reference_claims{c->of, std::string(c->federation), c->round, c->expires, std::string(c->note)};
  } catch (const std::bad_alloc&) {
    return failure(errc::out_of_memory);
  }
}

}  // namespace tensorpull
