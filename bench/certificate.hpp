// A certificate for programs that measure TLS between their own processes.
#pragma once

#include <tensorpull/transports/over/tls/tls.hpp>

#include <openssl/x509v3.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

namespace bench {

inline std::string text_of(const std::function<int(BIO*)>& write) {
  const tensorpull::detail::bio_ptr to(BIO_new(BIO_s_mem()));
  if (write(to.get()) != 1) std::abort();
  char* begin = nullptr;
  const long size = BIO_get_mem_data(to.get(), &begin);
  return {begin, static_cast<std::size_t>(size)};
}
/// A certificate for this address that has signed itself, and its key.
inline std::pair<std::string, std::string> own_certificate(const std::string& address) {
  const tensorpull::detail::key_ptr key(EVP_EC_gen("P-256"));
  const tensorpull::detail::certificate_ptr x(X509_new());
  X509_set_version(x.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(x.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(x.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(x.get()), 86400);
  X509_set_pubkey(x.get(), key.get());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(x.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("bench"), -1, -1, 0);
  X509_set_issuer_name(x.get(), X509_get_subject_name(x.get()));
  X509_EXTENSION* const name = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, ("IP:" + address).c_str());
  X509_add_ext(x.get(), name, -1);
  X509_EXTENSION_free(name);
  X509_sign(x.get(), key.get(), EVP_sha256());
  return {text_of([&](BIO* b) { return PEM_write_bio_X509(b, x.get()); }), text_of([&](BIO* b) {
            return PEM_write_bio_PrivateKey(b, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
          })};
}

}  // namespace bench
