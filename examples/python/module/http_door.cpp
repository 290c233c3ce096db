// A port beside an owner that answers HTTP, in a file of its own: it takes long to compile.
#include "http.hpp"

#include <tensorpull/satellites/http/owner/http_door.hpp>

namespace tensorpull::python {
namespace {

template <class Door>
struct opened_door final : any_door {
  explicit opened_door(Door d) noexcept : of(std::move(d)) {}
  std::uint16_t port() const noexcept override { return of.port(); }
  std::size_t connections() const noexcept override { return of.connections(); }
  Door of;
};

template <class Transport, class Next, class Address>
std::unique_ptr<any_door> open_beside(any_owner& of, const Address& listen, const http_door_options& options) {
  auto door = open_http_door<Next>(static_cast<owner_over<Transport>&>(of).of, listen, options);
  if (!door) raise(door.error());
  return std::make_unique<opened_door<std::remove_reference_t<decltype(*door)>>>(std::move(*door));
}

}  // namespace

std::unique_ptr<any_door> open_door_beside(any_owner& of, link_scheme kind, std::string_view listen, bool metrics,
                                           std::string_view origin, const host_options& host, const tls_settings* tls) {
  const auto pages = http_origin::parse(origin);
  if (!origin.empty() && !pages)
    throw py::value_error("allow_origin is \"*\", or \"https://host[:port]\" in lower case and without a path");
  const http_door_options options{.http = {.metrics = metrics, .allow_origin = *pages}, .host = host};
#if TENSORPULL_PYTHON_TLS
  if (kind == link_scheme::tls_url)
    return open_beside<tls_on_threads, tls_on_threads>(of, tls != nullptr ? tls->at(listen) : tls_address{listen},
                                                       options);
#endif
  (void)tls;
  if (kind == link_scheme::unix_url) return open_beside<unix_socket_on_threads, tcp_on_threads>(of, listen, options);
  return open_beside<tcp_on_threads, tcp_on_threads>(of, listen, options);
}

}  // namespace tensorpull::python
