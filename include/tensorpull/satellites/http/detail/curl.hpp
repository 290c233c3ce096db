// libcurl's handles, and what its errors are called here.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/satellites/http/detail/characters.hpp>
#include <tensorpull/satellites/http/proxy/http_proxy.hpp>
#include <tensorpull/system/address.hpp>

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

namespace tensorpull::detail {

template <auto Free>
struct curl_deleter {
  template <class T>
  void operator()(T* object) const noexcept {
    (void)Free(object);
  }
};
using curl_easy_ptr = std::unique_ptr<CURL, curl_deleter<curl_easy_cleanup>>;
using curl_multi_ptr = std::unique_ptr<CURLM, curl_deleter<curl_multi_cleanup>>;
using curl_url_ptr = std::unique_ptr<CURLU, curl_deleter<curl_url_cleanup>>;
using curl_text_ptr = std::unique_ptr<char, curl_deleter<curl_free>>;
using curl_fields_ptr = std::unique_ptr<curl_slist, curl_deleter<curl_slist_free_all>>;

/// Whether libcurl can be used. The first call prepares it, for all threads.
inline bool curl_is_ready() noexcept {
  static const bool ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  return ready;
}

/// libcurl's own limit for a connect would be five minutes: ours is that of the request.
inline constexpr long no_timeout_ms = 24 * 3600 * 1000;

/// Refuses what could end a line. Errors: invalid_argument, which names neither; bad_address.
inline result<void> check_proxy(const http_proxy& proxy) noexcept {
  for (const auto text : {proxy.user, proxy.password})
    if (text.size() > 4096 || !is_printable(text)) return failure(errc::invalid_argument);
  if (proxy.user.find(':') != proxy.user.npos) return failure(errc::invalid_argument, 0, std::string_view("user"));
  const bool more = proxy.address.find_first_of("@/?#") != proxy.address.npos;  // than host and port
  if (more || (!proxy.address.empty() && !parse_address(proxy.address)))
    return failure(errc::bad_address, 0, without_secrets(proxy.address));
  return {};
}
/// Leads the way through a proxy, or, if it has no address, through none, whatever the environment says. False: there
/// is no memory.
inline bool set_proxy(CURL* to, const http_proxy& proxy) {
  const auto set = [&](CURLoption what, const std::string& text) {
    return curl_easy_setopt(to, what, text.c_str()) == CURLE_OK;
  };
  (void)curl_easy_setopt(to, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  return set(CURLOPT_NOPROXY, "") &&  // or the environment's would lead past it
         set(CURLOPT_PROXY, proxy.address.empty() ? "" : "http://" + std::string(proxy.address)) &&
         (proxy.user.empty() || (set(CURLOPT_PROXYUSERNAME, std::string(proxy.user)) &&
                                 set(CURLOPT_PROXYPASSWORD, std::string(proxy.password))));
}

/// The name in an error about a server or a proxy: its address, after the status with which it refused.
inline error_name status_from(unsigned status, std::string_view from) noexcept {
  std::array<char, 64> text{'0', '0', '0', ' ', 'f', 'r', 'o', 'm', ' '};
  constexpr std::size_t begins = 9;
  for (std::size_t i = 3; i-- > 0; status /= 10) text[i] = static_cast<char>('0' + status % 10);
  from = from.substr(0, text.size() - begins);
  std::copy(from.begin(), from.end(), text.begin() + begins);
  return std::string_view(text.data(), begins + from.size());
}

/// How it is called that a resolver does not know the host of "host:port".
inline errc unresolved(std::string_view where) noexcept {
  const auto parsed = parse_address(where);
  return parsed && !may_be_a_name(parsed->host.data()) ? errc::bad_address : errc::unknown_host;
}
/// The last part of what libcurl says about TLS, which is the library's reason.
inline std::string_view tls_reason(std::string_view said) noexcept {
  const std::size_t colon = said.rfind(':');
  said.remove_prefix(colon == said.npos ? 0 : colon + 1);
  said.remove_prefix(std::min(said.find_first_not_of(' '), said.size()));
  return said;
}
/// The error of a request to `server` that has ended with this code. `said`: libcurl's words. `head`: whether the head
/// of an answer had come.
inline error error_of(CURL* easy, CURLcode code, std::string_view said, std::string_view server,
                      const http_proxy& proxy, bool head) noexcept {
  long system = 0, refused = 0;
  (void)curl_easy_getinfo(easy, CURLINFO_OS_ERRNO, &system);
  (void)curl_easy_getinfo(easy, CURLINFO_HTTP_CONNECTCODE, &refused);
  const auto is = [&](errc what, std::string_view name) {
    return error{what, static_cast<std::int32_t>(system), 0, name};
  };
  const auto says = [&](std::string_view words) { return said.find(words) != said.npos; };
  if (!proxy.address.empty() && refused != 0 && refused / 100 != 2)
    return {refused >= 500 ? errc::connection_failed : errc::proxy_refused, 0, static_cast<std::uint64_t>(refused),
            status_from(static_cast<unsigned>(refused), proxy.address)};
  if (says("CONNECT tunnel failed")) return is(errc::proxy_refused, proxy.address);
  constexpr auto too_large = static_cast<CURLcode>(100);  // CURLE_TOO_LARGE, of libcurl 8.6 and later
  if (!head && (code == too_large || code == CURLE_OUT_OF_MEMORY))  // before, it says so of a line that is too long,
                                                                    // too
    return is(errc::too_large, "header fields");
  switch (code) {
    case CURLE_OUT_OF_MEMORY: return is(errc::out_of_memory, {});
    case CURLE_COULDNT_RESOLVE_HOST: return is(unresolved(server), server);
    case CURLE_COULDNT_RESOLVE_PROXY: return is(unresolved(proxy.address), proxy.address);
    case CURLE_OPERATION_TIMEDOUT: return is(errc::timed_out, server);
    case CURLE_PEER_FAILED_VERIFICATION: return is(errc::not_authenticated, tls_reason(said));
    case CURLE_SSL_CACERT_BADFILE: return is(errc::bad_file, "authorities");
    case CURLE_SSL_CRL_BADFILE: return is(errc::bad_file, "revocations");
    case CURLE_SSL_CERTPROBLEM: return is(errc::bad_file, "certificate or key");
    case CURLE_UNSUPPORTED_PROTOCOL: return is(errc::bad_frame, "not HTTP");
    case CURLE_BAD_CONTENT_ENCODING: return is(errc::bad_frame, said);
    case CURLE_WEIRD_SERVER_REPLY: return is(errc::connection_lost, said);  // also of a head that was cut
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      if (says("chunked-encoding")) return is(errc::bad_frame, said);
      // a certificate whose signature is wrong, or that the other end does not accept; or nothing that both ends speak
      if (says("routines") &&
          (!says("SSL routines") || says("certificate") || says("unknown ca") || says("access denied")))
        return is(errc::not_authenticated, tls_reason(said));
      if (says("SSL routines")) return is(errc::handshake_failed, tls_reason(said));
      return is(code == CURLE_SSL_CONNECT_ERROR ? errc::connection_failed : errc::connection_lost, server);
    default: return is(errc::connection_failed, server);
  }
}

}  // namespace tensorpull::detail
