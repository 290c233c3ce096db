#include "owners.hpp"

#include <tensorpull/system/address.hpp>

namespace tensorpull::facade {

result<std::unique_ptr<any_owner>> own_streams(const place& at, const host_options& options) {
  return boxed_as<any_owner, owner_over_streams>(owner_over_streams::downloader::open(stream_place{&at}, options), at,
                                                 options);
}

result<std::uint16_t> owner_over_streams::open_door(const door_settings& door) {
  if (features.door == nullptr) return failure(errc::unsupported_request);
  if (!parse_address(door.listen)) return failure(errc::bad_address, 0, std::string_view(door.listen));
  auto at = place::read((at_.is.encrypted ? "tls://" : "tcp://") + door.listen);
  if (!at) return failure(at.error());
  at->tls = at_.tls;
  auto made = features.door(*this, *at, door);
  if (!made) return failure(made.error());
  door_ = std::move(*made);
  return door_.port;
}

}  // namespace tensorpull::facade
