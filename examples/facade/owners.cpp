// Owners over streams of any kind.
#include "engine.hpp"

#include <tensorpull/transports/host/owner.hpp>

namespace tensorpull::facade {

result<std::unique_ptr<any_owner>> own_streams(const place& at, const host_options& options) {
  using downloader = net<any_streams>::downloader;
  host_options mine = options;
  if (!mine.authorise) mine.authorise = authorised_at(at);
  return boxed_as<any_owner, owner_of<downloader>>(downloader::open(stream_place{&at}, mine));
}

}  // namespace tensorpull::facade
