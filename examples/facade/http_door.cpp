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
  const auto password = http_password::parse(door.status_password);
  if (!door.status_password.empty() && !password)
    return failure(errc::invalid_argument, 0, std::string_view("status_password"));
  if (!parse_address(door.listen)) return failure(errc::bad_address, 0, std::string_view(door.listen));
  auto port = place::read((at.is.encrypted ? "tls://" : "tcp://") + door.listen);
  if (!port) return failure(port.error());
  port->tls = at.tls;
  auto& beside = static_cast<owner_of<net<any_streams>::downloader>&>(owner);
  const auto names = std::make_shared<status_names>();
  auto made = open_http_door<any_streams>(beside.below(), stream_place{&*port},
                                          {.http = {.metrics = door.metrics,
                                                    .allow_origin = pages ? *pages : http_origin(),
                                                    .status = password ? *password : http_password(),
                                                    .pulls = &pulled,
                                                    .names = names.get()},
                                           .host = options});
  if (!made) return failure(made.error());
  const auto kept = std::make_shared<std::remove_reference_t<decltype(*made)>>(std::move(*made));
  beside.door = [names, kept] { return kept->connections(); };
  if (password)
    beside.name = [names](recipient_id who, const ref_id& id, std::string_view name) {
      if (who) names->add(who, name);
      else names->add(id, name);
    };
  return kept->port();
}

}  // namespace tensorpull::facade
