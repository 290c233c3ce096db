// The request to an HTTP proxy for a connection (CONNECT, RFC 9110, 9.3.6), with basic authorisation (RFC 7617).
#pragma once

#include <tensorpull/system/address.hpp>
#include <tensorpull/transports/over/proxy/detail/base64.hpp>
#include <tensorpull/transports/over/proxy/detail/characters.hpp>

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
      if (part.size() > most_credential_bytes || !detail::is_printable(part)) return failure(errc::invalid_argument);
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
    return detail::is_alphanumeric(c) || c == '.' || c == '-' || c == '_' || c == ':';
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
  /// "user:password" in base64.
  void add_credentials(std::string_view user, std::string_view password) noexcept {
    const std::array<std::string_view, 3> parts{user, ":", password};
    const auto at = [&](std::size_t i) {
      std::size_t which = 0;
      for (; i >= parts[which].size(); ++which) i -= parts[which].size();
      return parts[which][i];
    };
    detail::put_base64(user.size() + 1 + password.size(), at, [this](char c) noexcept { text_[size_++] = c; });
  }

  // two authorities, the credentials in base64, and the words around them
  std::array<char, 2 * (256 + 10) + (2 * most_credential_bytes + 3) / 3 * 4 + 80> text_;
  std::size_t size_ = 0;
};

}  // namespace tensorpull
