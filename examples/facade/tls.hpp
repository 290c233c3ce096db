// TLS, for the links and URLs that have it.
#pragma once

#include "place.hpp"

#include <tensorpull/transports/over/tls/tls.hpp>

namespace tensorpull::facade {

/// That of a place. None: the system's authorities.
tls_context context_of(const place& p) noexcept;

}  // namespace tensorpull::facade
