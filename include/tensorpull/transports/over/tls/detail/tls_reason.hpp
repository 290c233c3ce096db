// Why OpenSSL refuses to go on.
#pragma once

#include <openssl/err.h>
#include <openssl/ssl.h>

namespace tensorpull::detail {

/// The error of OpenSSL's layer of TLS; 0: none. It is the last one: those before tell what was wrong with a
/// signature, for example.
inline int tls_reason() noexcept {
  const auto e = ERR_peek_last_error();
  return ERR_GET_LIB(e) == ERR_LIB_SSL ? ERR_GET_REASON(e) : 0;
}
/// Whether the handshake would fail so again: not if bytes were lost or changed on the way, or the other end was
/// short of something.
constexpr bool is_final_reason(int reason) noexcept {
  switch (reason) {
    case 0:
    case SSL_R_UNEXPECTED_EOF_WHILE_READING:
    case SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC:
    case SSL_R_SSLV3_ALERT_BAD_RECORD_MAC:
    case SSL_R_TLSV1_ALERT_INTERNAL_ERROR:
    case SSL_R_TLSV1_ALERT_USER_CANCELLED: return false;
    default: return true;
  }
}
/// Whether a failure is that one end does not accept the other's certificate, or its lack.
constexpr bool is_about_certificates(int reason) noexcept {
  switch (reason) {
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED: return true;
    default: return false;
  }
}

}  // namespace tensorpull::detail
