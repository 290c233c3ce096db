// The text of a signed reference, read where it lies: without a heap, and with the program's own verifier of Ed25519. A
// small machine verifies with it, and so do hosts (signed_reference.hpp, by OpenSSL).
#pragma once

#include <tensorpull/core/digits.hpp>
#include <tensorpull/core/ids.hpp>
#include <tensorpull/core/requirements.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/satellites/proofs/proved_reference.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace tensorpull {

/// The content of a signed reference. `Text`: std::string on hosts (reference_claims), std::string_view on small
/// machines.
template <class Text>
struct basic_reference_claims {
  proved_reference of{};  ///< which bytes, and where they are asked for
  Text federation{};  ///< for whom: 1 to 255 printable characters of ASCII, no spaces
  std::uint64_t round = 0;  ///< counts up, so that an earlier one is not taken again
  std::uint64_t expires = 0;  ///< seconds since 1970 (Unix time) from which on it counts no more
  Text note{};  ///< the application's own: up to 1,024 printable characters of ASCII
};
/// The same in the text that was verified, and valid as long as that.
using reference_claims_view = basic_reference_claims<std::string_view>;

/// The demands of a recipient.
struct reference_demands {
  std::string_view federation{};  ///< its own; empty: that of the key
  std::uint64_t least_round = 0;  ///< no earlier one; a recipient keeps the last one that it has taken
  /// seconds since 1970; if it is left out, every reference has expired. Without a clock the program decides: with 0
  /// none ever has, and `least_round` alone keeps old ones out
  std::uint64_t now = ~std::uint64_t{0};
};

using ed25519_key = std::array<std::byte, 32>;  ///< A public key (RFC 8032).
using ed25519_signature = std::array<std::byte, 64>;  ///< A signature (RFC 8032).

/// A key whose references a recipient takes.
template <class Text>
struct basic_trusted_key {
  Text federation{};  ///< whose references it signs
  ed25519_key key{};  ///< what the signatures are verified with
  bool revoked = false;  ///< its references, for any federation, are refused by that name
};
/// The same with a federation's name that lies elsewhere, such as in flash.
using trusted_key = basic_trusted_key<std::string_view>;

namespace detail {
/// Whether it has these characters of ASCII alone.
constexpr bool has_visible_text(std::string_view text, char least = ' ') noexcept {
  for (const char c : text)
    if (c < least || c > '~') return false;
  return true;
}
// string_view::substr may throw, and a small machine has no code for that.
constexpr bool begins_with(std::string_view text, std::string_view with) noexcept {
  return text.size() >= with.size() && std::string_view(text.data(), with.size()) == with;
}
/// The key of a SubjectPublicKeyInfo of Ed25519 (RFC 8410) in base64: 16 characters that all of them begin with, and 44
/// of the key.
constexpr bool take_public_key(std::string_view base64, ed25519_key& key) noexcept {
  constexpr std::string_view kind = "MCowBQYDK2VwAyEA",
                             digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (base64.size() != 60 || !begins_with(base64, kind) || base64.back() != '=') return false;
  std::uint32_t bits = 0;
  unsigned have = 0;
  std::size_t bytes = 0;
  for (std::size_t i = kind.size(); i < 59; ++i) {
    const std::size_t digit = digits.find(base64[i]);
    if (digit == digits.npos) return false;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    have += 6;
    if (have < 8) continue;
    have -= 8;
    key[bytes++] = static_cast<std::byte>(bits >> have & 0xff);
  }
  return (bits & 3) == 0;
}

template <class V, bool Silent = true>
struct ed25519_verifier_requirements {
  static constexpr bool met_1 = requires(V& v, std::span<const std::byte, 32> key, std::span<const std::byte> message,
                                         std::span<const std::byte, 64> signature) {
    { v(key, message, signature) } -> std::same_as<bool>;
  };
  static_assert(
      Silent || met_1,
      "tensorpull: a verifier of Ed25519 returns whether a signature is right (requirement 1): bool operator()(std::span<const std::byte, 32> key, std::span<const std::byte> message, std::span<const std::byte, 64> signature) noexcept");
  static constexpr bool met_2 = met_1 &&
                                requires(V& v, std::span<const std::byte, 32> key, std::span<const std::byte> message,
                                         std::span<const std::byte, 64> signature) {
                                  { v(key, message, signature) } noexcept;
                                };
  static_assert(Silent || met_2 == met_1, "tensorpull: a verifier of Ed25519 is noexcept (requirement 2)");
};
}  // namespace detail

/// A verifier V of signatures of Ed25519 (RFC 8032), from whatever library a program has:
///  1. `v(key, message, signature)` is true if the signature is that of this key for exactly this message. It returns
///     bool and no number, since 0 is success in many libraries;
///  2. no call throws;
///  3. anything else is false: a key that is no point of the curve, too, and a signature whose second half is not below
///     the order of the group;
///  4. the three lie in memory that is unchanged, and at any address, until it returns. It keeps none of them.
template <class V>
concept ed25519_verifier = detail::ed25519_verifier_requirements<V>::met_2;

/// The key that a line spells, as in the file of a host's keys: a federation's name without spaces, a space, and a
/// public key as `openssl pkey -pubout` writes it between its first and last line; ` revoked` behind it. Valid as long
/// as the line. Error: bad_file.
constexpr result<trusted_key> parse_trusted_key(std::string_view line) noexcept {
  constexpr std::string_view revoked = " revoked";
  const std::size_t space = line.find(' ');
  if (space == 0 || space == line.npos || !detail::has_visible_text(line)) return failure(errc::bad_file);
  trusted_key read{.federation = {line.data(), space}};
  line.remove_prefix(space + 1);
  if (line.size() > revoked.size()) {
    const std::size_t rest = line.size() - revoked.size();
    read.revoked = std::string_view(line.data() + rest, revoked.size()) == revoked;
    if (read.revoked) line.remove_suffix(revoked.size());
  }
  if (!detail::take_public_key(line, read.key)) return failure(errc::bad_file);
  return read;
}

namespace detail {
inline constexpr std::size_t longest_signed_reference = 4096;

/// Takes the next line, if it has this name.
inline bool take_line(std::string_view& text, std::string_view name, std::string_view& value) noexcept {
  std::size_t end = 0;
  while (end < text.size() && text[end] != '\n') ++end;
  if (end == text.size() || end <= name.size() || !begins_with(text, name) || text[name.size()] != ' ') return false;
  value = {text.data() + name.size() + 1, end - name.size() - 1};
  text.remove_prefix(end + 1);
  return true;
}
/// Exactly these lower-case digits. False: the text is something else.
inline bool take_hex(std::string_view text, std::span<std::byte> bytes) noexcept {
  if (text.size() != 2 * bytes.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool is_letter = c >= 'a' && c <= 'f';
    if (!is_letter && (c < '0' || c > '9')) return false;
    bytes[i / 2] = bytes[i / 2] << 4 | static_cast<std::byte>(c - (is_letter ? 'a' - 10 : '0'));
  }
  return true;
}
/// The same as numbers, the most significant digits first.
template <std::size_t Count>
bool take_hex_words(std::string_view text, const std::array<std::uint64_t*, Count>& words) noexcept {
  std::array<std::byte, 8 * Count> bytes{};
  if (!take_hex(text, bytes)) return false;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    *words[i / 8] = *words[i / 8] << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  return true;
}
inline bool take_reference(std::string_view text, reference& to) noexcept {
  return take_hex_words<3>(text, {&to.id.high, &to.id.low, &to.version});
}
inline bool take_decimal(std::string_view text, std::uint64_t& to) noexcept {
  const auto n = decimal_number(text);
  to = n.value_or(0);
  return n.has_value();
}
template <class Text>
bool has_right_sizes(const basic_reference_claims<Text>& c) noexcept {
  const std::string_view federation = c.federation, note = c.note;
  return !federation.empty() && federation.size() <= 255 && has_visible_text(federation, '!') && note.size() <= 1024 &&
         has_visible_text(note) && c.of.model.version != 0;
}

/// A signed reference before its signature was checked.
struct signed_claims {
  reference_claims_view claims{};
  std::string_view text{};  // what was signed; a part of what was read
  ed25519_signature signature{};
};
/// Its lines begin so, in this order.
inline constexpr std::string_view names_of_lines[]{"tensorpull reference",
                                                   "federation",
                                                   "round",
                                                   "expires",
                                                   "model",
                                                   "schema",
                                                   "tree",
                                                   "root",
                                                   "bytes",
                                                   "note",
                                                   "signature"};
/// Reads one, whoever has signed it. False: the text is none; `at`: the first line that does not belong where it is
/// begins there, or ends.
inline bool read_signed(std::string_view text, signed_claims& read, std::size_t& at) noexcept {
  reference_claims_view& c = read.claims;
  std::string_view left = text, value;
  const std::string_view* name = names_of_lines;
  const auto line = [&] { return take_line(left, *name++, value); };
  bool right = text.size() <= longest_signed_reference && line() && value.size() == 1 && value[0] == '1' && line();
  c.federation = value;
  right = right && line() && take_decimal(value, c.round) && line() && take_decimal(value, c.expires) && line() &&
          take_reference(value, c.of.model) && line() && take_hex_words<1>(value, {&c.of.model.fingerprint}) &&
          line() && take_reference(value, c.of.tree) && line() && take_hex(value, c.of.root) && line() &&
          take_decimal(value, c.of.image_bytes) && line();
  c.note = value;
  read.text = {text.data(), text.size() - left.size()};
  right = right && line() && take_hex(value, read.signature) && left.empty() && has_right_sizes(c);
  at = text.size() - left.size();
  return right;
}

/// The claims of a text, by a range of keys.
template <class Keys, class Verifier>
result<reference_claims_view> verified_claims(std::string_view text, const Keys& keys, const reference_demands& demands,
                                              Verifier& verifies) noexcept {
  signed_claims read;
  std::size_t place = 0;
  if (!read_signed(text, read, place)) return failure(errc::bad_file, place);
  const reference_claims_view& c = read.claims;
  bool revoked = false, good = false;
  for (const auto& k : keys)
    if ((k.federation == c.federation || k.revoked) &&
        verifies(std::span(k.key), std::as_bytes(std::span(read.text)), std::span(std::as_const(read.signature))))
      (k.revoked ? revoked : good) = true;
  using namespace std::string_view_literals;
  const auto refuse = [](errc code, std::string_view name, std::uint64_t at) -> result<reference_claims_view> {
    return failure(code, at, name);
  };
  if (revoked) return refuse(errc::not_authenticated, "revoked"sv, 0);
  if (!good) return refuse(errc::not_authenticated, "signature"sv, 0);
  if (!demands.federation.empty() && demands.federation != c.federation)
    return refuse(errc::not_permitted, "federation"sv, 0);
  if (c.round < demands.least_round) return refuse(errc::not_permitted, "round"sv, c.round);
  if (demands.now >= c.expires) return refuse(errc::not_permitted, "expires"sv, c.expires);
  return c;
}
}  // namespace detail

/// The claims of a signed reference, if a trusted key has signed exactly this text and it meets the demands. Errors:
/// bad_file: no such text (longer than 4,096 bytes, its parts in another order, no number where one belongs);
/// not_authenticated: its name is `signature` (no trusted key of this federation has signed it), `revoked` (one has
/// that counts no more); not_permitted: its name is `federation`, `round` or `expires`. The signature is checked first,
/// so the other names are true of a reference that a key has signed. The verifier is called once for each key that is
/// of the text's federation or revoked. No heap; the stack is the verifier's, and 0.9 KB on a machine of 32 bits.
template <class Verifier>
result<reference_claims_view> verify_reference(std::string_view text, std::span<const trusted_key> keys,
                                               const reference_demands& demands, Verifier&& verifier) noexcept {
  if constexpr (detail::ed25519_verifier_requirements<Verifier, false>::met_2)
    return detail::verified_claims(text, keys, demands, verifier);
  else return failure(errc::invalid_argument);
}

}  // namespace tensorpull
