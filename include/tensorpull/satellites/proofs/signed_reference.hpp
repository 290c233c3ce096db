// A reference that a key vouches for: what a model's bytes are, for whom, in which round and until when. With the key
// of a federation a recipient needs no other channel that it trusts. Ed25519 (RFC 8032), by OpenSSL.
#pragma once

#include <tensorpull/core/digits.hpp>
#include <tensorpull/core/ids.hpp>
#include <tensorpull/satellites/proofs/proved_pull.hpp>
#include <tensorpull/transports/over/tls/tls_context.hpp>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensorpull {

/// The content of a signed reference.
struct reference_claims {
  proved_reference of{};  ///< which bytes, and where they are asked for
  std::string federation;  ///< for whom: 1 to 255 printable characters of ASCII, no spaces
  std::uint64_t round = 0;  ///< counts up, so that an earlier one is not taken again
  std::uint64_t expires = 0;  ///< seconds since 1970 (Unix time) from which on it counts no more
  std::string note;  ///< the application's own: up to 1,024 printable characters of ASCII
};

/// The demands of a recipient.
struct reference_demands {
  std::string_view federation{};  ///< its own; empty: that of the key
  std::uint64_t least_round = 0;  ///< no earlier one
  std::uint64_t now = ~std::uint64_t{0};  ///< seconds since 1970; if it is left out, every reference has expired
};

namespace detail {
using signing_ptr = openssl_ptr<EVP_MD_CTX, EVP_MD_CTX_free>;

constexpr bool has_visible_text(std::string_view text) noexcept {
  for (const char c : text)
    if (c < ' ' || c > '~') return false;
  return true;
}
/// Exactly these lower-case digits. False: the text is something else.
inline bool take_hex(std::string_view text, std::span<std::byte> bytes) noexcept {
  if (text.size() != 2 * bytes.size()) return false;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto n = hex_number(text.substr(2 * i, 2));
    if (!n || text[2 * i] != hex_digit(*n >> 4) || text[2 * i + 1] != hex_digit(*n)) return false;
    bytes[i] = static_cast<std::byte>(*n);
  }
  return true;
}

inline constexpr std::string_view signed_reference_head = "tensorpull reference 1";
inline constexpr std::size_t longest_signed_reference = 4096;
using ed25519_signature = std::array<std::byte, 64>;

/// The text that is signed.
inline std::string claims_text(const reference_claims& c) {
  std::string text(signed_reference_head);
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
/// The value of the next line, which has this name. Nothing: it has another.
inline std::optional<std::string_view> take_line(std::string_view& text, std::string_view name) noexcept {
  const std::size_t end = text.find('\n');
  if (end == text.npos || end <= name.size() || text.substr(0, name.size()) != name || text[name.size()] != ' ')
    return {};
  const std::string_view value = text.substr(name.size() + 1, end - name.size() - 1);
  text.remove_prefix(end + 1);
  return value;
}
inline bool take_decimal(std::optional<std::string_view> value, std::uint64_t& to) noexcept {
  const auto n = value ? decimal_number(*value) : optional<std::uint64_t>();
  if (!n) return false;
  to = *n;
  return true;
}
inline bool take_reference(std::optional<std::string_view> value, reference& to) noexcept {
  if (!value || value->size() != 48) return false;
  const auto ref = parse_reference(*value);
  if (!ref) return false;
  to = *ref;
  return true;
}
/// As take_hex, of a word.
inline bool take_schema(std::optional<std::string_view> value, std::uint64_t& to) noexcept {
  return value && take_word(*value, to);
}
inline bool has_right_sizes(const reference_claims& c) noexcept {
  return !c.federation.empty() && c.federation.size() <= 255 && c.note.size() <= 1024 &&
         has_visible_text(c.federation) && c.federation.find(' ') == std::string::npos && has_visible_text(c.note) &&
         c.of.model.version != 0;
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
    detail::ed25519_signature signature{};
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
  /// Text of a federation's name without spaces, a space, and a public key as `openssl pkey -pubout` writes it between
  /// its first and last line; ` revoked` behind it: its references, for any federation, are refused by that name. Empty
  /// lines, and those that begin with `#`, are skipped. Of one federation several keys may be there, while one replaces
  /// another. Error: bad_file, `at` counts the file's lines from 1.
  static result<trusted_keys> parse(std::string_view text) noexcept {
    try {
      trusted_keys made;
      for (std::size_t number = 1; !text.empty(); ++number) {
        std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (line.empty() || line[0] == '#') continue;
        const std::size_t space = line.find(' ');
        if (space == 0 || space == line.npos || number > most || !detail::has_visible_text(line))
          return failure(errc::bad_file, number);
        std::string_view key = line.substr(space + 1);
        const bool revoked = key.ends_with(" revoked");
        if (revoked) key.remove_suffix(8);
        auto read = public_key(key);
        if (read == nullptr) return failure(errc::bad_file, number);
        made.all_.push_back({std::string(line.substr(0, space)), std::move(read), revoked});
      }
      return made;
    } catch (const std::bad_alloc&) {
      return failure(errc::out_of_memory);
    }
  }

 private:
  friend result<reference_claims> verify_reference(std::string_view, const trusted_keys&,
                                                   const reference_demands&) noexcept;
  struct trusted {
    std::string federation;
    detail::key_ptr key;
    bool revoked = false;
  };
  static constexpr std::size_t most = 10'000;

  /// A SubjectPublicKeyInfo of Ed25519 in base64: 60 characters that hold 44 bytes.
  static detail::key_ptr public_key(std::string_view base64) noexcept {
    std::array<unsigned char, 48> der{};
    if (base64.size() != 60 ||
        EVP_DecodeBlock(der.data(), reinterpret_cast<const unsigned char*>(base64.data()),
                        static_cast<int>(base64.size())) != 45 ||
        base64.back() != '=')
      return nullptr;
    const unsigned char* at = der.data();
    detail::key_ptr key(d2i_PUBKEY(nullptr, &at, 44));
    ERR_clear_error();
    return key != nullptr && at == der.data() + 44 && EVP_PKEY_get_id(key.get()) == EVP_PKEY_ED25519 ? std::move(key)
                                                                                                     : nullptr;
  }

  std::vector<trusted> all_;
};

namespace detail {
/// A signed reference before its signature was checked.
struct signed_claims {
  reference_claims claims;
  std::string_view text;  ///< what was signed; a part of what was read
  ed25519_signature signature{};
};
/// Reads one, whoever has signed it. Errors: bad_file, out_of_memory.
inline result<signed_claims> read_signed(std::string_view text) noexcept {
  if (text.size() > longest_signed_reference) return failure(errc::bad_file, text.size());
  try {
    signed_claims read;
    reference_claims& c = read.claims;
    std::string_view left = text;
    const auto at = [&] { return text.size() - left.size(); };
    const auto head = left.substr(0, signed_reference_head.size() + 1);
    if (!head.ends_with('\n') || !head.starts_with(signed_reference_head)) return failure(errc::bad_file, 0);
    left.remove_prefix(head.size());
    const auto federation = take_line(left, "federation");
    if (!federation) return failure(errc::bad_file, at());
    c.federation = *federation;
    const auto root_of = [&](std::optional<std::string_view> digits) { return digits && take_hex(*digits, c.of.root); };
    if (!take_decimal(take_line(left, "round"), c.round) || !take_decimal(take_line(left, "expires"), c.expires) ||
        !take_reference(take_line(left, "model"), c.of.model) ||
        !take_schema(take_line(left, "schema"), c.of.model.fingerprint) ||
        !take_reference(take_line(left, "tree"), c.of.tree) || !root_of(take_line(left, "root")) ||
        !take_decimal(take_line(left, "bytes"), c.of.image_bytes))
      return failure(errc::bad_file, at());
    const auto note = take_line(left, "note");
    if (!note) return failure(errc::bad_file, at());
    c.note = *note;
    read.text = text.substr(0, at());
    const auto digits = take_line(left, "signature");
    if (!digits || !take_hex(*digits, read.signature) || !left.empty() || !has_right_sizes(c))
      return failure(errc::bad_file, at());
    return read;
  } catch (const std::bad_alloc&) {
    return failure(errc::out_of_memory);
  }
}
}  // namespace detail

/// The claims of a signed reference, if a trusted key has signed exactly this text and it meets the demands. Errors:
/// bad_file: no such text (longer than 4,096 bytes, its parts in another order, no number where one belongs);
/// not_authenticated: its name is `signature` (no trusted key of this federation has signed it), `revoked` (one has
/// that counts no more); not_permitted: its name is `federation`, `round` or `expires`. The signature is checked first,
/// so the other names are true of a reference that a key has signed.
inline result<reference_claims> verify_reference(std::string_view text, const trusted_keys& keys,
                                                 const reference_demands& demands) noexcept {
  auto read = detail::read_signed(text);
  if (!read) return failure(read.error());
  reference_claims& c = read->claims;
  bool revoked = false, good = false;
  for (const auto& k : keys.all_) {
    if (k.federation != c.federation && !k.revoked) continue;
    const detail::signing_ptr context(EVP_MD_CTX_new());
    if (context == nullptr) return failure(errc::out_of_memory);
    if (EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, k.key.get()) == 1 &&
        EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(read->signature.data()),
                         read->signature.size(), reinterpret_cast<const unsigned char*>(read->text.data()),
                         read->text.size()) == 1)
      (k.revoked ? revoked : good) = true;
    ERR_clear_error();
  }
  if (revoked) return failure(errc::not_authenticated, 0, std::string_view("revoked"));
  if (!good) return failure(errc::not_authenticated, 0, std::string_view("signature"));
  if (!demands.federation.empty() && demands.federation != c.federation)
    return failure(errc::not_permitted, 0, std::string_view("federation"));
  if (c.round < demands.least_round) return failure(errc::not_permitted, c.round, std::string_view("round"));
  if (demands.now >= c.expires) return failure(errc::not_permitted, c.expires, std::string_view("expires"));
  return std::move(c);
}

}  // namespace tensorpull
