// Pulls a safetensors file from any server of HTTP, with TLS or without: the policy `http`. It needs libcurl.
#pragma once

#include <tensorpull/satellites/http/recipient/detail/http_exchange.hpp>
#include <tensorpull/satellites/http/recipient/detail/sha256_checked.hpp>
#include <tensorpull/transports/concept.hpp>

#include <array>
#include <cstdio>
#include <new>
#include <string>

namespace tensorpull {

/// The ID under which cursors know what a URL names: all of it decides, scheme, host, port, path and query, and nothing
/// of it can be read there.
inline ref_id http_reference(const http_url& url) {
  xxh3_64 a, b;
  const std::string_view salt = "tensorpull.http";
  a.update(std::as_bytes(std::span(url.text)));
  b.update(std::as_bytes(std::span(salt)));
  b.update(std::as_bytes(std::span(url.text)));
  return {a.digest() | 1, b.digest()};
}
/// The same of a URL as a user writes it. Errors as parse_http_url.
inline result<ref_id> http_reference(std::string_view url) {
  const auto parsed = parse_http_url(url);
  if (!parsed) return failure(parsed.error());
  return http_reference(*parsed);
}

namespace detail {

/// 16 hexadecimal digits, by which an owner of this library counts a recipient that has no name. It would take each
/// connection for a recipient, none of which has all bytes.
template <class Parts>
std::string name_of_recipient(recipient_id me) {
  if (!me) me = random_recipient<typename Parts::platform>();
  std::array<char, 17> text{};
  (void)std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(me.value));
  return text.data();
}

/// A pull over HTTP. The driver is that of pull_with(), with requests for ranges instead of frames.
template <class Parts, consumer Consumer>
result<receipt> http_pull_with(const http_address& to, const reference& ref, Consumer& consumer,
                               const pull_options& options, typename Parts::chunking chunking) noexcept {
  static_assert(!Parts::integrity::per_chunk,
                "tensorpull: an HTTP server sends no digest with a chunk: use image_digest, which is the default");
  try {
    if (options.by_name()) return failure(errc::unsupported_request, 0, std::string_view("tensors by name"));
    const auto stated = parse_stated_digest(to.digest);
    if (!stated) return failure(stated.error());
    http_asked about{*stated};
    about.hashes = Parts::integrity::whole;
    about.needs_digest = about.hashes && !options.unverified;
    std::uint64_t version = stated->xxh3;
    if (!stated->any()) version = options.version != 0 ? options.version : ref.version;
    if (!about.hashes) about.version = version;
    else if (!stated->any()) about.digest.xxh3 = version;
    if constexpr (requires { consumer.looked(); }) about.lands = !consumer.looked();
    http_requests requests(to, name_of_recipient<Parts>(options.recipient));
    if (const auto ok = requests.prepare(); !ok) return failure(ok.error());
    reference asked_ref = ref;
    pull_options asked = options;
    asked_ref.version = asked.version = about.digest.xxh3;
    asked.unverified = true;  // whether a digest is known shows when the server has answered
    if (!asked_ref.id) asked_ref.id = http_reference(requests.origin());
    // what has the caller's digest is the same file under any URL: one that was signed anew, for example
    if (asked.cursor != nullptr && about.digest.any() && asked.cursor->version == http_file::version_of(about.digest))
      asked.cursor->ref = asked_ref.id;
    using checked_type = sha256_checked<Consumer>;
    using pull_type = running_pull<Parts, checked_type>;
    checked_type checked(consumer);
    pull_type pull(asked_ref, checked, asked, chunking, 1,
                   options.recipient ? options.recipient : random_recipient<typename Parts::platform>());
    http_exchange<pull_type, checked_type, typename Parts::limits> exchange(requests, to, about, pull, checked, asked);
    auto how = pull.run([&] { return exchange.drive(); }, &pause);
    if (how && checked.verified()) {
      how->outcome = outcome::completed;
      how->believed = !stated->sha256;
    }
    return how;
  } catch (const std::bad_alloc&) {
    return failure(errc::out_of_memory);
  }
}

/// Where an owner over HTTP would be: it has a header of its own.
template <class Parts>
class no_http_downloader {
  static_assert(never<Parts>,
                "tensorpull: `http` only pulls: publish over tcp or tls, and let the owner answer HTTP beside it");
};

}  // namespace detail

/// Policy for the transport slot: a recipient that pulls a safetensors file from any HTTP server. An address is an
/// http_address, or its URL as text. The reference may be empty: its version, if it has one, is the digest that the
/// bytes have to have, unless the address has a digest: that counts alone. With an integrity policy that computes none
/// (`unverified`) an owner of this library has to state that one, or it is stale_version; another server states none,
/// and what it has is taken (completed_unverified). tests/satellites/http/http_pull.test.cpp has an example of each
/// case. Errors: bad_address; not_verifiable: nobody has said which digest the file has; digest_mismatch; bad_file: no
/// safetensors file, or its length is not what its header says; not_permitted (401, 403, a redirect from https to http,
/// too many); not_authenticated: TLS; unknown_reference (404); withdrawn (410); stale_version (412, 416, another ETag:
/// the file was replaced); busy (429, 503, after as long as the server asks); unsupported_request, unsupported_layout
/// (Content-Encoding), wrong_payload, bad_frame, unexpected_frame, too_large: what the server does is not what was
/// asked. The name has the status and the server.
struct http {
  using is_transport_policy = void;  ///< marks it
  static constexpr std::uint64_t max_payload_bytes = tensorpull::max_payload_bytes;  ///< a range may have any length
  /// Of a request, on the heap: libcurl's buffer, what waits there for its turn, and what it keeps for TLS.
  static constexpr std::size_t connection_bytes = 1280 * 1024;
  static constexpr bool reliable = true;  ///< TCP is
  static constexpr bool ordered = true;  ///< chunks land in order, whatever the connections do
  static constexpr bool shares_memory = false;  ///< none is shared
  static constexpr bool encrypted = false;  ///< a URL may begin with http://
  static constexpr bool anyone_answers = false;  ///< the server of the URL does
  static constexpr identity_kind identifies = identity_kind::none;  ///< a URL may begin with http://
  /// The connections, and the first bytes of the file, on the heap. A longer header is held besides, until it has
  /// landed.
  template <class Parts>
  static constexpr std::size_t pull_bytes = 4 * connection_bytes + 96 * 1024;

  /// There is none.
  template <class Parts>
  using downloader = detail::no_http_downloader<Parts>;
  /// There is none.
  template <class Parts>
  using session = no_session<http>;

  /// As the policy says.
  template <class Parts, consumer Consumer>
  static result<receipt> pull(const http_address& to, const reference& ref, Consumer& consumer,
                              const pull_options& options, typename Parts::chunking chunking) noexcept {
    return detail::http_pull_with<Parts>(to, ref, consumer, options, chunking);
  }
  /// The same with a URL as text.
  template <class Parts, consumer Consumer>
  static result<receipt> pull(std::string_view url, const reference& ref, Consumer& consumer,
                              const pull_options& options, typename Parts::chunking chunking) noexcept {
    return pull<Parts>(http_address{.url = url}, ref, consumer, options, chunking);
  }
};
static_assert(transport<http>);

using https = http;  ///< one policy takes URLs of both schemes

}  // namespace tensorpull
