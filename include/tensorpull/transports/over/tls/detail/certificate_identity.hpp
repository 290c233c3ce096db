// The names in a certificate, in memory of fixed size. The certificate has been checked, but its names are whatever
// somebody has had signed.
#pragma once

#include <tensorpull/core/peer_identity.hpp>

#include <openssl/x509v3.h>

#include <arpa/inet.h>

#include <array>
#include <cstddef>
#include <cstring>

namespace tensorpull::detail {

/// A name with characters other than printable ASCII, or with UTF-8 in a DNS name or an address, could be taken for
/// another: it is left out. So are names for which there is no room; none is ever cut. Several common names are none,
/// since nothing tells which of them counts.
class certificate_identity {
 public:
  /// Room for one certificate's names, in bytes, and for so many alternative names.
  static constexpr std::size_t most_bytes = 2048, most_alternatives = 32;

  /// Views of the names; valid as long as this object stays where it is. `none` before take().
  const peer_identity& names() const noexcept { return names_; }

  /// Copies the names of a certificate that has been checked.
  void take(const X509* certificate) noexcept {
    names_.kind = identity_kind::certificate;
    const X509_NAME* const subject = X509_get_subject_name(certificate);
    if (const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
        at >= 0 && X509_NAME_get_index_by_NID(subject, NID_commonName, at) < 0)
      names_.name = add({}, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
    if (BIO* const text = BIO_new(BIO_s_mem()); text != nullptr) {
      char* begin = nullptr;
      if (X509_NAME_print_ex(text, subject, 0, XN_FLAG_RFC2253) >= 0) {
        const long size = BIO_get_mem_data(text, &begin);
        if (size > 0) names_.subject = add({}, {begin, static_cast<std::size_t>(size)});
      }
      BIO_free(text);
    }
    if (auto* const all = static_cast<GENERAL_NAMES*>(
            X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
        all != nullptr) {
      for (int i = 0; i < sk_GENERAL_NAME_num(all); ++i) add_alternative(*sk_GENERAL_NAME_value(all, i));
      GENERAL_NAMES_free(all);
    }
    names_.alternatives = {alternatives_.data(), count_};
  }

 private:
  void add_alternative(const GENERAL_NAME& name) noexcept {
    std::string_view text;
    switch (name.type) {
      case GEN_DNS: text = add("DNS:", name.d.dNSName); break;
      case GEN_URI: text = add("URI:", name.d.uniformResourceIdentifier); break;
      case GEN_EMAIL: text = add("email:", name.d.rfc822Name); break;
      case GEN_IPADD: {
        char digits[INET6_ADDRSTRLEN];
        const int size = ASN1_STRING_length(name.d.iPAddress);
        if (size != 4 && size != 16) return;
        if (::inet_ntop(size == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(name.d.iPAddress), digits,
                        sizeof digits) == nullptr)
          return;
        text = add("IP:", std::string_view(digits));
        break;
      }
      default: return;
    }
    if (!text.empty() && count_ < alternatives_.size()) alternatives_[count_++] = text;
  }
  std::string_view add(std::string_view type, const ASN1_STRING* text) noexcept {
    unsigned char* utf8 = nullptr;
    const int size = ASN1_STRING_to_UTF8(&utf8, text);
    if (size < 0) return {};
    const auto added = add(type, {reinterpret_cast<const char*>(utf8), static_cast<std::size_t>(size)});
    OPENSSL_free(utf8);
    return added;
  }
  /// Empty: it was left out.
  std::string_view add(std::string_view type, std::string_view text) noexcept {
    for (const char c : text)
      if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) return {};
    if (text.empty() || count_ == alternatives_.size() || bytes_.size() - used_ < type.size() + text.size()) return {};
    char* const at = bytes_.data() + used_;
    if (!type.empty()) std::memcpy(at, type.data(), type.size());
    std::memcpy(at + type.size(), text.data(), text.size());
    used_ += type.size() + text.size();
    return {at, type.size() + text.size()};
  }

  peer_identity names_{};
  std::array<char, most_bytes> bytes_;
  std::size_t used_ = 0, count_ = 0;
  std::array<std::string_view, most_alternatives> alternatives_;
};

}  // namespace tensorpull::detail
