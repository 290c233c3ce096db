// HTTP from Python: pulls from URLs, and a port beside an owner that answers HTTP.
#pragma once

#include "links.hpp"
#include "other_links.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

namespace tensorpull::python {

/// What a pull from a URL takes besides; Python sets the attributes. Texts are empty if they were not given.
struct http_settings {
  std::string digest, bearer, recipient;
  std::uint64_t max_header_bytes = std::uint64_t{16} << 20;
};

/// Whether an address is a URL of a web server, which parse_link_url does not know.
inline bool is_web_url(std::string_view text) noexcept {
  return text.starts_with("http://") || text.starts_with("https://");
}

/// Raises bad_address for text that is not a URL; invalid_argument for a name that would not be heeded.
void check_web_url(std::string_view url, const tls_settings* tls);
/// The ID under which a part of a file knows what it is of: the URL's own, since two URLs may name two files. With a
/// version that of the reference: bytes are compared with it.
ref_id web_reference(std::string_view url, ref_id given, std::uint64_t version);
result<receipt> pull_web(std::string_view url, const http_settings& how, const tls_settings* tls, const reference& from,
                         pull_target to, const pull_options& options, chunks cut) noexcept;

/// `of`: what open_at() has opened at a link of that kind: TCP, TLS or a Unix socket. The port is one of TCP; of TLS,
/// if the owner's is. `origin`: of web pages that may read it; empty: of no other. Raises what listening fails with.
std::unique_ptr<any_door> open_door_beside(any_owner& of, link_scheme kind, std::string_view listen, bool metrics,
                                           std::string_view origin, const host_options& host, const tls_settings* tls);

}  // namespace tensorpull::python
