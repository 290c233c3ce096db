// Addresses as Python has them, and what is raised about them.
#pragma once

#include "errors.hpp"
#include "settings.hpp"

#include <tensorpull/system/without_secrets.hpp>

#include <memory>
#include <string_view>
#include <utility>

namespace tensorpull::python {

using tls_settings = std::shared_ptr<facade::any_tls>;

/// Raises bad_address.
template <class T>
T as_address(result<T>&& read) {
  if (!read)
    raise(read.error(), false,
          "this is no address: host:port is wanted, as in 127.0.0.1:8002, or a link such as unix:/run/model");
  return std::move(*read);
}

/// An address or a URL. Raises bad_address, also for a link that this build has not, and invalid_argument for settings
/// of TLS that would not be heeded.
inline facade::place place_or_url(std::string_view address, const tls_settings& tls) {
  if (const auto why = facade::missing(as_address(facade::scheme_of(address))); !why.empty())
    raise(errc::bad_address, without_secrets(address).view(), why);
  facade::place at = as_address(facade::place::read(address));
  if (tls && !at.is.encrypted && !at.is.web)
    raise(errc::invalid_argument, without_secrets(address).view(),
          "ssl is for tls:// and https://, and this address is not encrypted");
  if (tls && at.is.web && !tls->given.check_hostname.empty())  // a redirect may lead to a host of another name
    raise(errc::invalid_argument, "check_hostname", "the certificate of a URL is checked for the URL's host");
  at.tls = tls;
  if (tls) at.proxy = {tls->given.proxy, tls->given.proxy_user, tls->given.proxy_password};
  return at;
}
/// An address of a session, or of an owner if somebody can listen there.
inline facade::place place_of(std::string_view address, const tls_settings& tls, bool to_listen = false) {
  facade::place at = place_or_url(address, tls);
  if (at.is.web) return as_address<facade::place>(failure(errc::bad_address, 0, without_secrets(address)));
  if (to_listen && !at.is.listens)
    raise(errc::bad_address, without_secrets(address).view(), "nobody can listen on a link of this kind");
  return at;
}

}  // namespace tensorpull::python
