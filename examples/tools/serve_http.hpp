// An owner over streams, with a port beside it that answers HTTP.
#pragma once

#include "serve_over.hpp"

#include <tensorpull/satellites/http/owner/http_door.hpp>

namespace tools {

template <class Owner, class Door>
class served_with_door final : public served_by_owner<Owner> {
 public:
  served_with_door(Owner owner, Door door) : served_by_owner<Owner>(std::move(owner)), door_(std::move(door)) {}
  std::size_t connections() const override { return served_by_owner<Owner>::connections() + door_.connections(); }
  std::uint16_t http_port() const override { return door_.port(); }

 private:
  Door door_;  // ends before the owner
};

/// The same as serve_owner(), and a door, if one was asked for. `listen(address)`: where it listens, for a transport
/// `Next`.
template <class Next, class Owner, class Listen>
serving serve_owner_and_http(tp::result<Owner> opened, const http_door_choice& http, Listen listen) {
  if (!opened || http.address.empty()) return serve_owner(std::move(opened));
  auto door = tp::open_http_door<Next>(
      *opened, listen(std::string_view(http.address)),
      {.http = {.metrics = http.metrics, .allow_origin = *tp::http_origin::parse(http.origin)}});
  if (!door) return tp::failure(door.error());
  return std::unique_ptr<served>(
      new served_with_door<Owner, std::remove_reference_t<decltype(*door)>>(std::move(*opened), std::move(*door)));
}

}  // namespace tools
