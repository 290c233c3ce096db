// What asks an HTTP proxy for a connection (CONNECT, RFC 9110, 9.3.6), with basic authorisation (RFC 7617).
#pragma once

#include <tensorpull/system/address.hpp>

#include <array>
#include <cstring>
#include <span>

namespace tensorpull {

/// A proxy on the way. The texts are borrowed.
struct http_proxy {
  std::string_view address{};   ///< the proxy's "host:port"; empty: none is on the way
  std::string_view user{};      ///< for basic authorisation; empty: none. At most 255 bytes, without a colon
  std::string_view password{};  ///< at most 255 bytes. It is sent to the proxy in the clear
};

/// The text of one request. It has the password, and wipes itself.
class proxy_request {
 public:
  /// For a connection to "host:port". Errors, neither of which names user or password: bad_address: the host is none,
  /// or has characters that no host has; invalid_argument: user or password are too long or have characters that must
  /// not be there.
  static result<proxy_request> to(std::string_view target, const http_proxy& proxy) noexcept {
    const auto where = parse_address(target);
    if (!where) return failure(where.error());
    const std::string_view host(where->host.data());
    if (host.empty()) return failure(errc::bad_address, 0, target);
    for (const char c : host)
      if (!in_a_host(c)) return failure(errc::bad_address, 0, target);
    for (const auto part : {proxy.user, proxy.password})
      if (part.size() > most_credential_bytes || !printable(part)) return failure(errc::invalid_argument);
    if (proxy.user.find(':') != std::string_view::npos) return failure(errc::invalid_argument);

    proxy_request r;
    r.add("CONNECT ");
    r.add_authority(host, where->port.data());
    r.add(" HTTP/1.1\r\nHost: ");
    r.add_authority(host, where->port.data());
    if (!proxy.user.empty()) {
      r.add("\r\nProxy-Authorization: Basic ");
      r.add_credentials(proxy.user, proxy.password);
    }
    r.add("\r\n\r\n");
    return r;
  }
  proxy_request(const proxy_request&) noexcept = default;
  proxy_request& operator=(const proxy_request&) noexcept = default;
  ~proxy_request() { ::explicit_bzero(text_.data(), text_.size()); }

  /// The bytes to send.
  std::span<const std::byte> bytes() const noexcept { return std::as_bytes(std::span(text_).first(size_)); }

 private:
  static constexpr std::size_t most_credential_bytes = 255;

  proxy_request() noexcept = default;
  /// Letters, digits, and what names and numeric addresses have besides them: nothing that could end the line or the
  /// word.
  static constexpr bool in_a_host(char c) noexcept {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' ||
           c == '_' || c == ':';
  }
  static constexpr bool printable(std::string_view text) noexcept {
    for (const char c : text)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
    return true;
  }
  void add(std::string_view text) noexcept {
    std::memcpy(text_.data() + size_, text.data(), text.size());
    size_ += text.size();
  }
  void add_authority(std::string_view host, std::string_view port) noexcept {
    const bool v6 = host.find(':') != std::string_view::npos;
    if (v6) add("[");
    add(host);
    if (v6) add("]");
    add(":");
    add(port);
  }
  /// "user:password" in base64 (RFC 4648).
  void add_credentials(std::string_view user, std::string_view password) noexcept {
    constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const std::size_t n = user.size() + 1 + password.size();
    const auto at = [&](std::size_t i) -> std::uint32_t {
      if (i >= n) return 0;
      return static_cast<unsigned char>(i < user.size()    ? user[i]
                                        : i == user.size() ? ':'
                                                           : password[i - user.size() - 1]);
    };
    for (std::size_t i = 0; i < n; i += 3) {
      const std::uint32_t three = at(i) << 16 | at(i + 1) << 8 | at(i + 2);
      for (std::size_t d = 0; d < 4; ++d) text_[size_++] = i + d > n ? '=' : digits[three >> (18 - 6 * d) & 63];
    }
  }

  // two authorities, the credentials in base64, and the words around them
  std::array<char, 2 * (256 + 10) + (2 * most_credential_bytes + 3) / 3 * 4 + 80> text_;
  std::size_t size_ = 0;
};

}  // namespace tensorpull
