// TLS, for the links and URLs that have it.
#pragma once

#include "place.hpp"

#include <tensorpull/transports/over/tls/tls.hpp>

namespace tensorpull::facade {

/// The context of a configuration.
tls_context context_of(const any_tls& configuration) noexcept;
/// That of a place. None: the system's authorities.
tls_context context_of(const place& p) noexcept;

}  // namespace tensorpull::facade
