// Where to pull a reference from: what one party hands to another, so that a third one can be asked. One line of text,
// or a member of a message struct.
#pragma once

#include <tensorpull/core/ids.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/system/link_url.hpp>

#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace tensorpull {

/// Addresses ("host:port", "tls://host:port", "unix:/run/model", "https://host/model.safetensors") and a reference. A
/// value of fixed size (about 560 bytes) that owns its text and never allocates, so that nothing a peer sends decides
/// how much memory it takes.
class locator {
 public:
  static constexpr std::size_t max_addresses = 4;  ///< The most addresses.
  static constexpr std::size_t max_address_bytes = 127;  ///< The longest address.
  /// The longest text form.
  static constexpr std::size_t max_text_bytes = 11 + 32 + 1 + 16 + 1 + 16 + max_addresses * (1 + max_address_bytes);

  tensorpull::reference reference{};  ///< The reference to pull.

  locator() noexcept = default;
  /// A locator without addresses.
  explicit locator(const tensorpull::reference& ref) noexcept : reference(ref) {}

  /// Appends an address, with or without the name of a link (system/link_url.hpp), or a URL of HTTP; recipients try
  /// them in order. bad_address: no address, too long, no host, port 0, a user or a password, or one of the characters
  /// that no address here may have (what is not ASCII, spaces, control characters, `,` `"`). Also those that nobody may
  /// be told to use: a command (`pipe:`), a device (`serial:`). table_full: there are max_addresses already.
  result<void> add(std::string_view address) noexcept {
    if (count_ == max_addresses) return failure(errc::table_full, max_addresses);
    if (address.size() > max_address_bytes) return failure(errc::bad_address, address.size(), address);
    for (const char c : address)
      if (c <= ' ' || c >= 0x7f || c == ',' || c == '"')
        return failure(errc::bad_address);  // not named: it may not be fit to print
    if (!may_be_handed_on(address)) return failure(errc::bad_address);  // not named: there may be a password in it
    text_address& to = addresses_[count_++];
    std::memcpy(to.text.data(), address.data(), address.size());
    to.bytes = static_cast<std::uint8_t>(address.size());
    return {};
  }

  /// The number of addresses.
  std::size_t addresses() const noexcept { return count_; }
  /// i < addresses(); valid while the locator lives.
  std::string_view address(std::size_t i) const noexcept { return {addresses_[i].text.data(), addresses_[i].bytes}; }

  /// Whether it names a reference.
  explicit operator bool() const noexcept { return static_cast<bool>(reference.id); }

  friend bool operator==(const locator& a, const locator& b) noexcept {
    if (a.reference != b.reference || a.count_ != b.count_) return false;
    for (std::size_t i = 0; i < a.count_; ++i)
      if (a.address(i) != b.address(i)) return false;
    return true;
  }

 private:
  static bool may_be_handed_on(std::string_view address) noexcept {
    const std::string_view path = address.substr(0, address.find('/'));
    if (path == "http:" || path == "https:") {
      const std::string_view rest = address.substr(path.size());
      const std::string_view host = rest.substr(rest.starts_with("//") ? 2 : rest.size());
      return !host.empty() && host[0] != '/' && host.substr(0, host.find('/')).find('@') == std::string_view::npos;
    }
    const auto url = parse_link_url(address);
    if (!url || url->scheme == "pipe" || url->scheme == "serial") return false;
    if (url->form == link_form::text) return true;
    if (url->address.find('@') != std::string_view::npos) return false;
    if (url->form == link_form::url) return true;
    const auto parsed = parse_address(url->address);
    return parsed && parsed->host[0] != '\0' && parsed->number != 0;
  }

  struct text_address {
    std::array<char, max_address_bytes> text;
    std::uint8_t bytes = 0;
  };
  std::array<text_address, max_addresses> addresses_{};
  std::size_t count_ = 0;
};

/// The text form of a locator, for a log, a file, or another program's message.
struct locator_text {
  std::array<char, locator::max_text_bytes> characters;  ///< Not terminated by a zero.
  std::size_t bytes = 0;  ///< Characters in use.
  std::string_view view() const noexcept { return {characters.data(), bytes}; }  ///< Valid while this object lives.
};

namespace detail {

inline constexpr std::string_view locator_scheme = "tensorpull:";

}  // namespace detail

/// One line: `tensorpull:ID/VERSION/FINGERPRINT` with the numbers as hexadecimal digits. If there are addresses, an at
/// sign and the addresses follow, separated by commas.
inline locator_text to_text(const locator& l) noexcept {
  locator_text t;
  const auto put = [&t](std::string_view s) {
    std::memcpy(t.characters.data() + t.bytes, s.data(), s.size());
    t.bytes += s.size();
  };
  put(detail::locator_scheme);
  put(to_digits(l.reference.id).view());
  put("/");
  put(detail::hex_digits(l.reference.version).view());
  put("/");
  put(detail::hex_digits(l.reference.fingerprint).view());
  for (std::size_t i = 0; i < l.addresses(); ++i) {
    put(i == 0 ? "@" : ",");
    put(l.address(i));
  }
  return t;
}

/// Reads the text form, from anybody: bounded work, no allocation, nothing accepted but what to_text() writes
/// (hexadecimal digits may be of either case). too_large: longer than any locator; bad_frame, with the position in
/// `at`: not a locator; bad_address; table_full.
inline result<locator> parse_locator(std::string_view text) noexcept {
  if (text.size() > locator::max_text_bytes) return failure(errc::too_large, text.size());
  constexpr std::size_t id_at = detail::locator_scheme.size(), version_at = id_at + 33,
                        fingerprint_at = version_at + 17, end_at = fingerprint_at + 16;
  if (text.substr(0, id_at) != detail::locator_scheme) return failure(errc::bad_frame, 0);
  if (text.size() < end_at || text[version_at - 1] != '/' || text[fingerprint_at - 1] != '/')
    return failure(errc::bad_frame, id_at);
  const auto id = parse_ref_id(text.substr(id_at, 32));
  if (!id || !*id) return failure(errc::bad_frame, id_at);
  locator out;
  out.reference.id = *id;
  if (!detail::take_word(text.substr(version_at, 16), out.reference.version))
    return failure(errc::bad_frame, version_at);
  if (!detail::take_word(text.substr(fingerprint_at, 16), out.reference.fingerprint))
    return failure(errc::bad_frame, fingerprint_at);
  if (text.size() == end_at) return out;
  if (text[end_at] != '@') return failure(errc::bad_frame, end_at);
  for (std::size_t at = end_at + 1;;) {
    const std::size_t comma = text.find(',', at);
    if (const auto ok = out.add(text.substr(at, comma == std::string_view::npos ? comma : comma - at)); !ok)
      return failure(ok.error());
    if (comma == std::string_view::npos) return out;
    at = comma + 1;
  }
}

}  // namespace tensorpull
