// Where a pull over HTTP finds its file, and what it may cost.
#pragma once

#include <tensorpull/satellites/http/proxy/http_proxy.hpp>
#include <tensorpull/transports/tls_options.hpp>

#include <cstdint>
#include <string_view>

namespace tensorpull {

/// An address for pulls of `http`: `net::download_tensors(http_address{.url = "https://server/model.safetensors"},
/// ref_id{}, mine)`. The texts are borrowed.
struct http_address {
  /// "http://host:port/path?query" or the same with https, as libcurl reads it, without a user in front of the host.
  /// Path and query are sent byte for byte, so that a signed URL stays right.
  std::string_view url{};
  /// The digest that the file has to have, "sha256:" and 64 or "xxh3:" and 16 hexadecimal digits. Empty: the one that
  /// the server states (Repr-Digest), or the version of the reference. A digest that is given here counts more than
  /// anything that a server states, entity tags included.
  std::string_view digest{};
  /// Sent as "Authorization: Bearer ...", to the origin of `url` alone. An owner of this library takes the reference's
  /// digits.
  std::string_view bearer{};
  /// For basic authorisation instead, to the origin of `url` alone; without a colon.
  std::string_view user{};
  /// For basic authorisation; over http it is sent in the clear.
  std::string_view password{};
  /// Whether user and password are taken from `~/.netrc`, by the host of `url`, if `user` is empty.
  bool netrc = false;
  /// The name by which an owner of this library counts this recipient. Empty: the 16 digits of the ID in the pull's
  /// options, or of a random one for each pull. It is sent to the origin of `url` alone.
  std::string_view recipient{};
  /// A proxy on the way. http goes through it as a request for the whole URL, https as a connection (CONNECT). The
  /// environment names none.
  http_proxy proxy{};
  /// 0: one range over one connection, from the first missing byte to the end of the file. Its bytes land as they
  /// arrive, so TCP's own window follows the path, and holds the server back if the consumer is slow. 1 to 8: so many
  /// connections, each with one range on its way, which is a chunk. Several are for a server that slows each connection
  /// down. If the pull's options have a `window`, 0 means as many connections, 4 at most.
  std::uint32_t connections = 0;
  /// How many redirects are followed. None leads from https to http.
  std::uint32_t redirects = 5;
  /// The longest header of a safetensors file that is read: it is held in memory until it has landed.
  std::uint64_t most_header_bytes = std::uint64_t{16} << 20;
  /// The longest file that is taken from a server that sends no ranges, which sends all of it again after a lost
  /// connection. 0: none is taken.
  std::uint64_t most_whole_bytes = std::uint64_t{64} << 30;
  /// For https. Without authorities the system's are trusted: those of the environment's SSL_CERT_FILE or SSL_CERT_DIR,
  /// or libcurl's. The certificate is shown to the origin of `url` alone. Revocation lists are read from a file.
  tls_options tls{};
};

}  // namespace tensorpull
