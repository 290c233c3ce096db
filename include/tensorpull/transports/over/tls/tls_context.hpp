// The configuration of a TLS connection: authorities, certificate, key. Shared by the connections; replaced as a whole
// while they go on.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/transports/tls_options.hpp>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>

namespace tensorpull {

namespace detail {

template <auto Free>
struct openssl_free {
  template <class T>
  void operator()(T* object) const noexcept {
    Free(object);
  }
};
template <class T, auto Free>
using openssl_ptr = std::unique_ptr<T, openssl_free<Free>>;
using bio_ptr = openssl_ptr<BIO, BIO_free>;
using certificate_ptr = openssl_ptr<X509, X509_free>;
using key_ptr = openssl_ptr<EVP_PKEY, EVP_PKEY_free>;
using revocations_ptr = openssl_ptr<X509_CRL, X509_CRL_free>;
using ssl_context_ptr = openssl_ptr<SSL_CTX, SSL_CTX_free>;
using ssl_ptr = openssl_ptr<SSL, SSL_free>;

/// The name in an error about it: the file, or which option it is.
inline std::string_view name_of(const pem_source& s, std::string_view option) noexcept {
  return s.file.empty() ? option : s.file;
}

inline result<bio_ptr> open_pem(const pem_source& from) noexcept {
  if (from.text.data() != nullptr) {
    if (from.text.size() > 1u << 26) return failure(errc::bad_file);
    bio_ptr memory(BIO_new_mem_buf(from.text.data(), static_cast<int>(from.text.size())));
    if (memory == nullptr) return failure(errc::out_of_memory);
    return memory;
  }
  std::array<char, 4096> name{};
  if (from.file.size() >= name.size() || from.file.find('\0') != std::string_view::npos)
    return failure(errc::bad_file, 0, from.file, ENAMETOOLONG);
  std::memcpy(name.data(), from.file.data(), from.file.size());
  errno = 0;
  bio_ptr file(BIO_new_file(name.data(), "r"));
  if (file == nullptr) return failure(errc::bad_file, 0, from.file, errno);
  return file;
}

/// Gives OpenSSL the password of a key, or none. Without it OpenSSL would ask at the terminal.
inline int give_password(char* to, int room, int, void* from) noexcept {
  const auto& password = *static_cast<const std::string_view*>(from);
  if (room < 0 || password.size() > static_cast<std::size_t>(room)) return -1;
  if (!password.empty()) std::memcpy(to, password.data(), password.size());
  return static_cast<int>(password.size());
}

/// Calls `take(object)` with each object that `read(bio)` finds, until there is no more. False: the text is not valid,
/// none was found, or `take` returned false.
template <class Read, class Take>
bool each_in_pem(BIO* from, Read read, Take take) noexcept {
  std::size_t count = 0;
  while (auto object = read(from)) {
    if (!take(std::move(object))) return false;
    ++count;
  }
  const auto why = ERR_peek_last_error();
  return count > 0 && ERR_GET_LIB(why) == ERR_LIB_PEM && ERR_GET_REASON(why) == PEM_R_NO_START_LINE;
}
inline certificate_ptr read_certificate(BIO* from) noexcept {
  std::string_view none;
  return certificate_ptr(PEM_read_bio_X509(from, nullptr, give_password, &none));
}

inline result<void> use_authorities(SSL_CTX* to, const pem_source& from, bool named_to_clients) noexcept {
  const auto source = open_pem(from);
  if (!source) return failure(source.error());
  const bool taken = each_in_pem(source->get(), read_certificate, [&](certificate_ptr c) {
    return X509_STORE_add_cert(SSL_CTX_get_cert_store(to), c.get()) == 1 &&
           (!named_to_clients || SSL_CTX_add_client_CA(to, c.get()) == 1);
  });
  if (!taken) return failure(errc::bad_file, 0, name_of(from, "authorities"));
  return {};
}
inline result<void> use_certificate(SSL_CTX* to, const tls_options& options) noexcept {
  const auto certificates = open_pem(options.certificate);
  if (!certificates) return failure(certificates.error());
  bool own = true;
  const bool taken = each_in_pem(certificates->get(), read_certificate, [&](certificate_ptr c) {
    return std::exchange(own, false) ? SSL_CTX_use_certificate(to, c.get()) == 1
                                     : SSL_CTX_add1_chain_cert(to, c.get()) == 1;
  });
  if (!taken) return failure(errc::bad_file, 0, name_of(options.certificate, "certificate"));
  const pem_source& key = options.key.empty() ? options.certificate : options.key;
  const auto source = open_pem(key);
  if (!source) return failure(source.error());
  std::string_view password = options.key_password;
  const key_ptr secret(PEM_read_bio_PrivateKey(source->get(), nullptr, give_password, &password));
  if (secret == nullptr) return failure(errc::bad_file, 0, name_of(key, "key"));
  if (SSL_CTX_use_PrivateKey(to, secret.get()) != 1 || SSL_CTX_check_private_key(to) != 1)
    return failure(errc::bad_file, 0, std::string_view("key: not that of the certificate"));
  return {};
}
inline result<void> use_revocations(SSL_CTX* to, const pem_source& from) noexcept {
  const auto source = open_pem(from);
  if (!source) return failure(source.error());
  X509_STORE* const store = SSL_CTX_get_cert_store(to);
  const auto read = [](BIO* bio) { return revocations_ptr(PEM_read_bio_X509_CRL(bio, nullptr, nullptr, nullptr)); };
  const bool taken = each_in_pem(source->get(), read,
                                 [&](revocations_ptr list) { return X509_STORE_add_crl(store, list.get()) == 1; });
  if (!taken || X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL) != 1)
    return failure(errc::bad_file, 0, name_of(from, "revocations"));
  return {};
}

/// Bytes that one read from the next stream may bring: a few records, so that few calls are needed.
inline constexpr std::size_t tls_read_ahead_bytes = 32 * 1024;
/// Bytes of certificates that the other end may send: they are read before its identity is known, and take ten times as
/// much memory.
inline constexpr long tls_certificates_bytes = 16 * 1024;

inline result<ssl_context_ptr> make_ssl_context(const tls_options& options) noexcept {
  if (options.clients_have_certificates && options.authorities.empty())
    return failure(errc::invalid_argument, 0, std::string_view("authorities"));
  ssl_context_ptr to(SSL_CTX_new(TLS_method()));
  if (to == nullptr) return failure(errc::out_of_memory);
  SSL_CTX* const c = to.get();
  // what the system's configuration may have switched on is switched off, too
  SSL_CTX_clear_options(c, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_ALLOW_UNSAFE_LEGACY_RENEGOTIATION |
                               SSL_OP_LEGACY_SERVER_CONNECT | SSL_OP_ENABLE_KTLS);
#if defined(SSL_OP_ALLOW_CLIENT_RENEGOTIATION)
  SSL_CTX_clear_options(c, SSL_OP_ALLOW_CLIENT_RENEGOTIATION);
#endif
  SSL_CTX_set_options(c, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE |
                             (options.session_tickets ? 0 : SSL_OP_NO_TICKET));
  SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // No automatic retry: a peer that sends nothing but new keys must not hold a read, which ends when the buffer is
  // empty. Buffers stay, so that no record allocates.
  SSL_CTX_clear_mode(c, SSL_MODE_AUTO_RETRY | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_read_ahead(c, 1);
  SSL_CTX_set_default_read_buffer_len(c, tls_read_ahead_bytes);
  SSL_CTX_set_max_cert_list(c, tls_certificates_bytes);
  if (SSL_CTX_get_security_level(c) < 2) SSL_CTX_set_security_level(c, 2);
  SSL_CTX_set_verify(c, SSL_VERIFY_PEER | (options.clients_have_certificates ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
                     nullptr);
  static constexpr std::string_view sessions = "tensorpull";
  const bool set = SSL_CTX_set_min_proto_version(
                       c, options.minimum == tls_version::v1_3 ? TLS1_3_VERSION : TLS1_2_VERSION) == 1 &&
                   SSL_CTX_set_max_proto_version(c, 0) == 1 &&
                   SSL_CTX_set_num_tickets(c, options.session_tickets ? 2 : 0) == 1 &&
                   SSL_CTX_set_cipher_list(c, "ECDHE+AESGCM:ECDHE+CHACHA20:!aNULL:!eNULL") == 1 &&
                   SSL_CTX_set_session_id_context(c, reinterpret_cast<const unsigned char*>(sessions.data()),
                                                  sessions.size()) == 1;
  if (!set) return failure(errc::invalid_argument);
  if (options.authorities.empty()) {
    if (SSL_CTX_set_default_verify_paths(c) != 1) return failure(errc::bad_file, 0, std::string_view("authorities"));
  } else if (const auto ok = use_authorities(c, options.authorities, options.clients_have_certificates); !ok)
    return failure(ok.error());
  if (!options.certificate.empty())
    if (const auto ok = use_certificate(c, options); !ok) return failure(ok.error());
  if (!options.revocations.empty())
    if (const auto ok = use_revocations(c, options.revocations); !ok) return failure(ok.error());
  return to;
}

}  // namespace detail

/// A configuration that connections and listeners share: a copy is the same one. Any thread may use it. It never
/// changes; reload() replaces it with another, for each connection that begins afterwards.
class tls_context {
 public:
  /// None. A client without one trusts the system's authorities and shows no certificate.
  tls_context() noexcept = default;

  /// Reads what the options name, and nothing later. Errors: bad_file, with the file or the option, and errno: not
  /// there, not PEM; the same with "key: not that of the certificate"; invalid_argument: clients have to show
  /// certificates, and no authorities are given; out_of_memory.
  static result<tls_context> make(const tls_options& options) noexcept {
    auto made = read(options);
    if (!made) return failure(made.error());
    try {
      tls_context c;
      c.shared_ = std::make_shared<shared>();
      c.shared_->now = std::move(*made);
      return c;
    } catch (...) {
      return failure(errc::out_of_memory);
    }
  }
  /// Makes it anew. Connections that have begun go on as they are. Errors: as make(); the old one stays then.
  /// invalid_argument: there is none.
  result<void> reload(const tls_options& options) noexcept {
    if (shared_ == nullptr) return failure(errc::invalid_argument);
    auto made = read(options);
    if (!made) return failure(made.error());
    const std::lock_guard hold(shared_->lock);
    shared_->now.swap(*made);
    return {};
  }
  /// Whether there is one.
  explicit operator bool() const noexcept { return shared_ != nullptr; }

  /// Whether it has a certificate of its own now. An end that accepts connections cannot do without.
  bool has_certificate() const noexcept {
    const auto one = begin();
    return one != nullptr && SSL_get_certificate(one.get()) != nullptr;
  }

  /// For streams: a connection's own object of OpenSSL, of the configuration as it is now. nullptr: there is no
  /// context, or no memory.
  detail::ssl_ptr begin() const noexcept {
    if (shared_ == nullptr) return nullptr;
    detail::ssl_context_ptr now;
    {
      const std::lock_guard hold(shared_->lock);
      if (SSL_CTX_up_ref(shared_->now.get()) == 1) now.reset(shared_->now.get());
    }
    return detail::ssl_ptr(now != nullptr ? SSL_new(now.get()) : nullptr);
  }

 private:
  static result<detail::ssl_context_ptr> read(const tls_options& options) noexcept {
    auto made = detail::make_ssl_context(options);
    ERR_clear_error();  // others of this thread use the same queue
    return made;
  }
  struct shared {
    std::mutex lock;
    detail::ssl_context_ptr now;
  };
  std::shared_ptr<shared> shared_;
};

}  // namespace tensorpull
