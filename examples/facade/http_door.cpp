// A port beside an owner that answers HTTP.
#include "engine.hpp"

#include <tensorpull/satellites/http/owner/http_door.hpp>
#include <tensorpull/system/address.hpp>
#include <tensorpull/transports/host/owner.hpp>

namespace tensorpull::facade {

result<void> is_page_origin(std::string_view text) {
  if (!http_origin::parse(text)) return failure(errc::invalid_argument, 0, text);
  return {};
}
result<std::uint16_t> open_door_beside(any_owner& owner, const place& at, const door_settings& door,
                                       const host_options& options) {
  const auto pages = http_origin::parse(door.origin);
  if (!door.origin.empty() && !pages) return failure(errc::invalid_argument, 0, std::string_view(door.origin));
  if (!parse_address(door.listen)) return failure(errc::bad_address, 0, std::string_view(door.listen));
  auto port = place::read((at.is.encrypted ? "tls://" : "tcp://") + door.listen);
  if (!port) return failure(port.error());
  port->tls = at.tls;
  auto& beside = static_cast<owner_of<net<any_streams>::downloader>&>(owner);
  auto made = open_http_door<any_streams>(
      beside.below(), stream_place{&*port},
      {.http = {.metrics = door.metrics, .allow_origin = pages ? *pages : http_origin()}, .host = options});
  if (!made) return failure(made.error());
  const auto kept = std::make_shared<std::remove_reference_t<decltype(*made)>>(std::move(*made));
  beside.door = [kept] { return kept->connections(); };
  return kept->port();
}

}  // namespace tensorpull::facade
