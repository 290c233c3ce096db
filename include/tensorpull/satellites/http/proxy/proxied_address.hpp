// TCP through an HTTP proxy, with libcurl: `net::session::connect(proxied_address{"server:8002", {.address =
// "proxy:3128"}})`, and `tls_address{"server:8002", context, {}, &through}` with a proxy_dialer.
#pragma once

#include <tensorpull/links/posix/dialer.hpp>
#include <tensorpull/satellites/http/detail/curl.hpp>
#include <tensorpull/satellites/http/proxy/http_proxy.hpp>
#include <tensorpull/satellites/http/recipient/http_url.hpp>
#include <tensorpull/transports/over/tcp/tcp_connect.hpp>

#include <fcntl.h>

#include <array>
#include <new>
#include <string>

namespace tensorpull {

/// Connects through a proxy (CONNECT, RFC 9110, 9.3.6), which resolves the host's name. Borrows the proxy's texts.
class proxy_dialer final : public dialer {
 public:
  /// Without an address no proxy is on the way.
  explicit proxy_dialer(const http_proxy& proxy) noexcept : proxy_(proxy) {}

  /// Errors: bad_address; connection_failed (with errno): of the proxy, or, with its status and its address as the
  /// name, what it says from 500 on; proxy_refused: another status, or its answer is not HTTP; invalid_argument: user
  /// or password; timed_out; cancelled; out_of_memory. No error has user or password. Allocates, as libcurl does.
  result<posix_stream> dial(std::string_view address, std::chrono::milliseconds timeout,
                            const stop_token& stop = {}) const noexcept override {
    if (proxy_.address.empty()) return tcp_connect(address, detail::deadline_after(timeout), stop);
    try {
      return dial_through(address, timeout, stop);
    } catch (...) {
      return failure(errc::out_of_memory);
    }
  }

 private:
  result<posix_stream> dial_through(std::string_view address, std::chrono::milliseconds timeout,
                                    const stop_token& stop) const {
    const auto port = parse_address(address);
    if (!port) return failure(port.error());
    if (const auto proxy = parse_address(proxy_.address); !proxy) return failure(proxy.error());
    const auto url = parse_http_url("http://" + std::string(address));
    if (!url || url->target() != "/" || !url->address().ends_with(":" + std::to_string(port->number)))  // more than a
                                                                                                        // host
      return failure(errc::bad_address, 0, without_secrets(address));
    if (const auto ok = detail::check_proxy(proxy_); !ok) return failure(ok.error());

    const detail::curl_multi_ptr multi(curl_multi_init());
    const detail::curl_easy_ptr easy(curl_easy_init());
    std::array<char, CURL_ERROR_SIZE> said{};
    if (multi == nullptr || easy == nullptr) return failure(errc::out_of_memory);
    CURL* const e = easy.get();
    (void)curl_easy_setopt(e, CURLOPT_ERRORBUFFER, said.data());
    (void)curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(e, CURLOPT_QUICK_EXIT, 1L);
    (void)curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, detail::no_timeout_ms);
    (void)curl_easy_setopt(e, CURLOPT_HTTPPROXYTUNNEL, 1L);
    (void)curl_easy_setopt(e, CURLOPT_CONNECT_ONLY, 1L);
    bool set = curl_easy_setopt(e, CURLOPT_URL, url->text.c_str()) == CURLE_OK;
    set = detail::set_proxy(e, proxy_) && set;
    if (!set || curl_multi_add_handle(multi.get(), e) != CURLM_OK) return failure(errc::out_of_memory);

    const auto deadline = detail::deadline_after(timeout);
    for (int count = 0;;) {
      (void)curl_multi_perform(multi.get(), &count);
      if (const CURLMsg* const ended = curl_multi_info_read(multi.get(), &count)) {
        if (ended->data.result == CURLE_OK) return socket_of(e);
        auto why = detail::error_of(e, ended->data.result, said.data(), proxy_.address, proxy_, true);
        if (why.code == errc::connection_lost) why.code = errc::connection_failed;
        return failure(why);
      }
      if (stop.stop_requested()) return failure(errc::cancelled);
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      if (left <= left.zero()) return failure(errc::timed_out);
      (void)curl_multi_poll(multi.get(), nullptr, 0, static_cast<int>(std::min(left, detail::wait_step).count()),
                            nullptr);
    }
  }
  /// A descriptor of its own for the connection: libcurl closes the one that it has.
  static result<posix_stream> socket_of(CURL* e) noexcept {
    curl_socket_t fd = -1;
    (void)curl_easy_getinfo(e, CURLINFO_ACTIVESOCKET, &fd);
    posix_stream s(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (s.native_handle() < 0) return failure(errc::connection_failed, 0, {}, errno);
    detail::tune_connected(s.native_handle());
    return s;
  }

  http_proxy proxy_;
};

/// An address for pulls and sessions of `tcp`. The texts are borrowed.
struct proxied_address {
  std::string_view address;  ///< "host:port" behind the proxy
  http_proxy proxy{};  ///< the proxy; without an address: none is on the way

  /// As proxy_dialer::dial.
  result<posix_stream> connect(std::chrono::milliseconds timeout, const stop_token& stop = {}) const noexcept {
    return proxy_dialer(proxy).dial(address, timeout, stop);
  }
};

}  // namespace tensorpull
