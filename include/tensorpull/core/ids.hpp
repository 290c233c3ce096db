// Identifiers: of what an owner publishes, and of a recipient.
#pragma once

#include <tensorpull/core/digits.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/core/xxh3.hpp>

#include <cstdint>
#include <string_view>

namespace tensorpull {

/// The ID of a reference: two 64-bit words on the wire, 32 lower-case hexadecimal digits in print. All zero means
/// "none".
struct ref_id {
  /// the first 16 of its 32 digits
  std::uint64_t high = 0;
  /// the last 16
  std::uint64_t low = 0;

  friend constexpr bool operator==(const ref_id&, const ref_id&) noexcept = default;
  constexpr explicit operator bool() const noexcept { return (high | low) != 0; }
};

namespace detail {

/// Reads the two words of an ID, as take_word().
constexpr bool take_id(std::string_view text, ref_id& id) noexcept {
  return text.size() == 32 && take_word(text.substr(0, 16), id.high) && take_word(text.substr(16), id.low);
}

}  // namespace detail

/// The 32 digits of an ID.
constexpr digits_text<32> to_digits(const ref_id& id) noexcept {
  digits_text<32> digits{};
  detail::put_word(id.high, digits.characters);
  detail::put_word(id.low, digits.characters + 16);
  return digits;
}

/// The ID that the text spells: exactly 32 hexadecimal digits of either case. Anything else is invalid_argument.
constexpr result<ref_id> parse_ref_id(std::string_view text) noexcept {
  ref_id id;
  if (!detail::take_id(text, id)) return failure(errc::invalid_argument);
  return id;
}

/// One end hands it to another so that it can pull: the ID, and what to expect under it. With a version, a pull ends as
/// completed only if the bytes have that digest, whoever sends them; without one, the sender states the digest
/// (receipt::believed).
struct reference {
  /// the ID under which the owner published
  ref_id id{};
  std::uint64_t version = 0;  ///< 0: whatever is published now
  std::uint64_t fingerprint = 0;  ///< 0: not stated

  friend constexpr bool operator==(const reference&, const reference&) noexcept = default;
};

/// The subject of a request: an ID, and then whatever was published last under it; or a reference, and then only the
/// version that it names.
struct publication_key {
  /// Of any version.
  constexpr publication_key(const ref_id& any) noexcept : id(any) {}
  /// The same by the words of the ID.
  constexpr publication_key(std::uint64_t high, std::uint64_t low) noexcept : id{high, low} {}
  /// Of the version that the reference names, if it names one.
  constexpr publication_key(const reference& ref) noexcept : id(ref.id), version(ref.version) {}

  ref_id id;  ///< the ID under which it was published
  std::uint64_t version = 0;  ///< 0: any
};

/// A reference as it is passed on between programs: 48 digits, the 32 of its ID and the 16 of its version.
constexpr digits_text<48> to_digits(const reference& ref) noexcept {
  digits_text<48> digits{};
  detail::put_word(ref.id.high, digits.characters);
  detail::put_word(ref.id.low, digits.characters + 16);
  detail::put_word(ref.version, digits.characters + 32);
  return digits;
}

/// The reference that the text spells: 48 hexadecimal digits of either case, or the 32 of an ID, which is a reference
/// without a version. Anything else is invalid_argument.
constexpr result<reference> parse_reference(std::string_view text) noexcept {
  constexpr std::size_t of_id = 32;
  reference ref;
  if (!detail::take_id(text.substr(0, of_id), ref.id)) return failure(errc::invalid_argument);
  if (text.size() > of_id && !detail::take_word(text.substr(of_id), ref.version))
    return failure(errc::invalid_argument);
  return ref;
}

/// Tells recipients apart. Chosen by the recipient, or by the program that knows them all. It does not authenticate:
/// any program with a reference may claim any ID. If that matters, give each recipient a reference of its own.
struct recipient_id {
  /// 0: none
  std::uint64_t value = 0;

  friend constexpr bool operator==(const recipient_id&, const recipient_id&) noexcept = default;
  constexpr explicit operator bool() const noexcept { return value != 0; }
};

/// The ID for a name such as "site-1": XXH3-64 of its bytes, so both sides get the same ID from the same name. Never 0.
constexpr recipient_id recipient_named(std::string_view name) noexcept {
  xxh3_64 h;
  h.update(name);
  const std::uint64_t v = h.digest();
  return {v != 0 ? v : 1};
}

}  // namespace tensorpull
