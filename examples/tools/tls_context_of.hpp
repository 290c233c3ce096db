// What TLS is configured with, as the command line says.
#pragma once

#include "link_choice.hpp"

#include <tensorpull/transports/over/tls/tls.hpp>

namespace tools {

/// Errors: those of tls_context::make.
inline tensorpull::result<tensorpull::tls_context> tls_context_of(const tls_choice& c) {
  tensorpull::tls_options o;
  const auto given = [](const std::string& file) { return file.empty() ? std::string_view{} : std::string_view(file); };
  o.authorities.file = given(c.authorities);
  o.certificate.file = given(c.certificate);
  o.key.file = given(c.key);
  o.revocations.file = given(c.revocations);
  o.clients_have_certificates = c.clients;
  return tensorpull::tls_context::make(o);
}

}  // namespace tools
