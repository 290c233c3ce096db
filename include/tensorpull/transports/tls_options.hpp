// How one end of TLS connections is configured, whichever library speaks TLS.
#pragma once

#include <cstdint>
#include <string_view>

namespace tensorpull {

/// Text in PEM, from memory or from a file. Text in memory is read when the context is made, and not kept.
struct pem_source {
  std::string_view text{};  ///< the text itself
  std::string_view file{};  ///< or the name of a file that has it
  /// Whether there is neither. A text without characters is one: it has nothing that could be trusted, and is refused.
  constexpr bool empty() const noexcept { return text.data() == nullptr && file.data() == nullptr; }
};

/// The oldest version of TLS that is spoken. 1.3 is taken wherever both ends have it.
enum class tls_version : std::uint8_t {
  v1_2,  ///< with the cipher suites that are still good: ephemeral keys and authenticated encryption
  v1_3,  ///< nothing older
};

/// How one end of TLS connections is configured. Either role may have each of them.
struct tls_options {
  /// Whose certificates the other end may show: one or more certificates. None: a client trusts the system's
  /// authorities.
  pem_source authorities{};
  /// The own certificate first, and then those between it and an authority: 16 KiB of them at most, as they are sent.
  /// An end that accepts connections needs one.
  pem_source certificate{};
  /// The private key of the own certificate. None: it is in the source of the certificate.
  pem_source key{};
  /// Of an encrypted key. Nobody is ever asked for it at a terminal.
  std::string_view key_password{};
  /// Lists of revoked certificates. If there are any, each authority between a certificate and the root has to have one
  /// that is not out of date, the root too.
  pem_source revocations{};
  /// Whether a client has to show a certificate of `authorities`, which must be given then. If it shows none, not one
  /// of its frames is looked at.
  bool clients_have_certificates = false;
  /// The oldest version that is spoken.
  tls_version minimum = tls_version::v1_2;
  /// Whether clients are sent tickets to return with sooner. With them a certificate is not looked at again until the
  /// context is replaced.
  bool session_tickets = false;
};

}  // namespace tensorpull
