// Files of any web server, to pull and to put, and TCP through a proxy: what libcurl does.
#include "http.hpp"
#include "engine.hpp"

#include <tensorpull/integrity/range_digest.hpp>
#include <tensorpull/satellites/http/proxy/proxied_address.hpp>
#include <tensorpull/satellites/http/recipient/http_pull.hpp>
#include <tensorpull/satellites/http/recipient/s3_put.hpp>

namespace tensorpull::facade {
namespace {

result<receipt> pull_web(any_pull& how, const reference& ref, any_consumer& to, const pull_options& options) {
  if (!to.undoes()) return failure(errc::unsupported_request);  // a web server sends no digests of chunks
  const any_chunks cut{how.chunk_bytes};
  if (how.digest) return net<http>::pull(web_place(how.from.front()), ref, to, options, cut);
  return net<http, any_chunks, unverified>::pull(web_place(how.from.front()), ref, to, options, cut);
}
result<put_counts> put_web(const place& at, const source_view& image, std::chrono::milliseconds timeout,
                           const stop_token& stop) {
  const auto version = image_version<xxhash_digest, 16 * 1024>(image, stop);
  if (!version) return failure(version.error() == errc::io ? errc::unreadable : version.error().code);
  const http_put_options how{.timeout = timeout, .stop = stop, .digest = *version};
  if (const s3_settings& s3 = at.http.s3; !s3.access_key.empty()) {
    http_address to = web_place(at);
    to.user = s3.access_key;
    to.password = s3.secret_key;
    const auto done = s3_put(to, image, {.put = how, .region = s3.region, .session_token = s3.session_token});
    if (!done) return failure(done.error());
    return put_counts{done->digest, done->sent};
  }
  const auto done = http_put(web_place(at), image, how);
  if (!done) return failure(done.error());
  return put_counts{done->digest, done->bytes};
}
result<ref_id> web_id(std::string_view url) { return http_reference(url); }
constexpr link_kind kind(std::string_view name, bool encrypted) {
  return {
      .name = name, .is = {.encrypted = encrypted, .web = true}, .pull = &pull_web, .put = &put_web, .url_id = &web_id};
}

}  // namespace

extern const link_kind link_http = kind("http", false), link_https = kind("https", true);

result<posix_stream> dial_through(const proxy_settings& proxy, std::string_view address,
                                  std::chrono::milliseconds timeout, const stop_token& stop) {
  return proxy_dialer(proxy_of(proxy)).dial(address, timeout, stop);
}

}  // namespace tensorpull::facade
