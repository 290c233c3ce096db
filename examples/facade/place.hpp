// Where the other end is, and what its link needs besides. An address is read once: afterwards nobody looks at its
// scheme, but asks the place what it is.
#pragma once

#include <tensorpull/core/ids.hpp>
#include <tensorpull/core/result.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tensorpull::facade {

struct link_kind;  // table.hpp

/// The properties of a kind of link.
struct link_traits {
  bool port = false;  ///< its addresses are host:port
  bool path = false;  ///< they are names of files, unless they begin with @
  bool encrypted = false;  ///< it has TLS
  bool web = false;  ///< they are URLs, whose server need not know tensorpull
  bool loses = false;  ///< it carries datagrams, and the digest is always checked
  bool several = false;  ///< a pull can go on from one of its places to another, and have connections to several
  bool listens = false;  ///< many can be served there
  bool viewed = false;  ///< what is published there can be viewed
};

/// A configuration of TLS. Texts are empty if they were not given.
struct tls_arguments {
  std::string ca_file{}, ca_text{}, cert_file{}, cert_text{}, key_file{}, key_text{}, key_password{}, crl_file{};
  std::string check_hostname{};  ///< what the certificate has to have, in place of the host of the address
  std::string proxy{}, proxy_user{}, proxy_password{};  ///< on the way
  bool require_client_certificates = false, only_tls_1_3 = false, session_tickets = false;
};
/// A configuration of TLS, which connections and owners share.
class any_tls {
 public:
  virtual ~any_tls() = default;
  /// Reads the files again, for connections that come later. After an error the old ones stay.
  virtual result<void> reload() noexcept = 0;
  const tls_arguments given;

 protected:
  explicit any_tls(const tls_arguments& arguments) : given(arguments) {}
};

/// The keys of a store that speaks S3. Without an access key nothing is signed.
struct s3_settings {
  std::string access_key{}, secret_key{}, session_token{}, region{};
};
/// Further settings of a URL. Texts are empty if they were not given.
struct http_settings {
  std::string digest{}, bearer{}, recipient{};
  s3_settings s3{};  ///< of an upload
  std::uint64_t max_header_bytes = std::uint64_t{16} << 20;
};
/// An HTTP proxy on the way to TCP, to TLS or to a URL.
struct proxy_settings {
  std::string address{}, user{}, password{};
};

/// A place to pull from, to connect to, or to listen on.
struct place {
  /// Reads HOST:PORT, a link such as unix:/run/model (system/link_url.hpp), or a URL of a web server. Errors, which
  /// name the text without its secrets: bad_address; unsupported_request: this build has no such link, as missing()
  /// says.
  static result<place> read(std::string_view text);

  const link_kind* kind;
  link_traits is;
  std::string_view scheme;  ///< "tcp" for HOST:PORT
  std::string address;  ///< as its link takes it
  ref_id id{};  ///< of a URL: under which a part of a file knows what it is of, since two URLs may name two files
  std::shared_ptr<any_tls> tls{};  ///< none: the system's authorities, and no certificate
  proxy_settings proxy{};
  http_settings http{};

  /// The same link with another address. TCP is written without its name.
  std::string with(std::string_view other) const;
};

/// The name of an address's link, also of one that this build has not. Error: bad_address.
result<std::string_view> scheme_of(std::string_view address) noexcept;
/// Why this build lacks a link of this name, such as "https": a sentence. Empty: it has it.
std::string_view missing(std::string_view scheme) noexcept;

}  // namespace tensorpull::facade
