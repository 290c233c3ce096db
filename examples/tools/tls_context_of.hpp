// What TLS is configured with, as the command line says.
#pragma once

#include "link_choice.hpp"

#include <tensorpull/transports/over/tls/tls.hpp>

namespace tools {

/// Errors: those of tls_context::make.
inline tensorpull::result<tensorpull::tls_context> tls_context_of(const tls_choice& c) {
  return tensorpull::tls_context::make(c.options());
}

}  // namespace tools
