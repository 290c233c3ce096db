// Authorities and certificates, made when a test runs: no key lies in the tree.
#pragma once

#include <tensorpull/transports/over/tls/tls.hpp>

#include <gtest/gtest.h>

#include <openssl/x509v3.h>

#include <string>

namespace test {

namespace tp = tensorpull;

/// What a certificate says. Times are seconds from now.
struct wanted_certificate {
  std::string common_name = "site";
  std::string alternatives = "IP:127.0.0.1";  ///< as OpenSSL writes them; empty: none
  long begins = -3600, ends = 3600;
  bool authority = false;
};

/// A key, the certificate of it, and the authority that has signed it.
class identity {
 public:
  explicit identity(const wanted_certificate& w = {}, const identity* signer = nullptr)
      : key_(EVP_EC_gen("P-256")), x_(X509_new()) {
    static std::atomic<long> serial{1};
    X509* const x = x_.get();
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), serial++);
    X509_gmtime_adj(X509_getm_notBefore(x), w.begins);
    X509_gmtime_adj(X509_getm_notAfter(x), w.ends);
    X509_set_pubkey(x, key_.get());
    add_name(X509_get_subject_name(x), w.common_name);
    X509_set_issuer_name(x, X509_get_subject_name(signer != nullptr ? signer->x_.get() : x));
    extend(NID_basic_constraints, w.authority ? "critical,CA:TRUE" : "CA:FALSE");
    if (w.authority) extend(NID_key_usage, "keyCertSign,cRLSign");
    if (!w.alternatives.empty()) extend(NID_subject_alt_name, w.alternatives);
    EXPECT_GT(X509_sign(x, signer != nullptr ? signer->key_.get() : key_.get(), EVP_sha256()), 0);
  }

  std::string certificate() const {
    return text([&](BIO* to) { return PEM_write_bio_X509(to, x_.get()); });
  }
  std::string key(std::string password = {}) const {
    return text([&](BIO* to) {
      return PEM_write_bio_PrivateKey(to, key_.get(), password.empty() ? nullptr : EVP_aes_256_cbc(),
                                      reinterpret_cast<const unsigned char*>(password.data()),
                                      static_cast<int>(password.size()), nullptr, nullptr);
    });
  }
  /// A list of those that it has revoked.
  std::string revocations(std::initializer_list<const identity*> revoked, long ends = 3600) const {
    const tp::detail::revocations_ptr list(X509_CRL_new());
    X509_CRL_set_version(list.get(), 1);
    X509_CRL_set_issuer_name(list.get(), X509_get_subject_name(x_.get()));
    const tp::detail::openssl_ptr<ASN1_TIME, ASN1_TIME_free> from(X509_gmtime_adj(nullptr, -7200)),
        to(X509_gmtime_adj(nullptr, ends));
    X509_CRL_set1_lastUpdate(list.get(), from.get());
    X509_CRL_set1_nextUpdate(list.get(), to.get());
    for (const identity* i : revoked) {
      X509_REVOKED* const one = X509_REVOKED_new();
      X509_REVOKED_set_serialNumber(one, X509_get_serialNumber(i->x_.get()));
      X509_REVOKED_set_revocationDate(one, from.get());
      X509_CRL_add0_revoked(list.get(), one);
    }
    X509_CRL_sort(list.get());
    EXPECT_GT(X509_CRL_sign(list.get(), key_.get(), EVP_sha256()), 0);
    return text([&](BIO* out) { return PEM_write_bio_X509_CRL(out, list.get()); });
  }
  X509* x509() const { return x_.get(); }
  EVP_PKEY* private_key() const { return key_.get(); }

 private:
  static void add_name(X509_NAME* to, const std::string& name) {
    X509_NAME_add_entry_by_txt(to, "O", MBSTRING_UTF8, reinterpret_cast<const unsigned char*>("tests"), -1, -1, 0);
    if (!name.empty())
      X509_NAME_add_entry_by_txt(to, "CN", MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(name.data()),
                                 static_cast<int>(name.size()), -1, 0);
  }
  void extend(int what, const std::string& value) {
    X509_EXTENSION* const e = X509V3_EXT_conf_nid(nullptr, nullptr, what, value.c_str());
    ASSERT_NE(e, nullptr) << value;
    X509_add_ext(x_.get(), e, -1);
    X509_EXTENSION_free(e);
  }
  template <class Write>
  static std::string text(Write write) {
    const tp::detail::bio_ptr to(BIO_new(BIO_s_mem()));
    EXPECT_EQ(write(to.get()), 1);
    char* begin = nullptr;
    const long size = BIO_get_mem_data(to.get(), &begin);
    return {begin, static_cast<std::size_t>(size)};
  }

  tp::detail::key_ptr key_;
  tp::detail::certificate_ptr x_;
};

/// Contexts that trust `by`, and show `of` if there is one.
inline tp::tls_context context_of(const identity* of, const identity& by, tp::tls_options options = {}) {
  const std::string authorities = by.certificate(), certificate = of != nullptr ? of->certificate() : "",
                    key = of != nullptr ? of->key() : "";
  options.authorities = {.text = authorities};
  if (of != nullptr) options.certificate = {.text = certificate}, options.key = {.text = key};
  const auto made = tp::tls_context::make(options);
  EXPECT_TRUE(made) << to_string(made.error().code) << " " << made.error().name.view();
  return made ? *made : tp::tls_context{};
}

/// An authority, a certificate of it for a server at 127.0.0.1, and one for a client.
struct pki {
  identity authority{{.common_name = "authority", .alternatives = {}, .authority = true}};
  identity server{{.common_name = "server"}, &authority};
  identity client{{.common_name = "site-1", .alternatives = "DNS:site-1.example.org,email:a@example.org"}, &authority};

  /// Contexts that show the server's certificate, and that show none.
  tp::tls_context serving(const tp::tls_options& options = {}) const { return context_of(&server, authority, options); }
  tp::tls_context calling(const tp::tls_options& options = {}) const { return context_of(nullptr, authority, options); }
  /// Where a server listens.
  tp::tls_address here(const tp::tls_options& options = {}) const { return {"127.0.0.1:0", serving(options)}; }
};

/// The same, and nothing newer than TLS 1.2: what an old peer can do.
inline tp::tls_context of_1_2(tp::tls_context c) {
  SSL_CTX_set_max_proto_version(SSL_get_SSL_CTX(c.begin().get()), TLS1_2_VERSION);
  return c;
}

}  // namespace test
