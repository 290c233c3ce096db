// A port beside an owner that answers HTTP.
#include "owners.hpp"

#include <tensorpull/satellites/http/owner/http_door.hpp>

namespace tensorpull::facade {

bool is_page_origin(std::string_view text) noexcept { return http_origin::parse(text).has_value(); }
result<opened_door> open_door_beside(owner_over_streams& owner, const place& at, const door_settings& door) {
  const auto pages = http_origin::parse(door.origin);
  if (!door.origin.empty() && !pages) return failure(errc::invalid_argument, 0, std::string_view(door.origin));
  auto made = open_http_door<any_streams>(
      owner.below(), stream_place{&at},
      {.http = {.metrics = door.metrics, .allow_origin = pages ? *pages : http_origin()}, .host = owner.host});
  if (!made) return failure(made.error());
  const auto kept = std::make_shared<std::remove_reference_t<decltype(*made)>>(std::move(*made));
  return opened_door{kept->port(), [kept] { return kept->connections(); }};
}

}  // namespace tensorpull::facade
