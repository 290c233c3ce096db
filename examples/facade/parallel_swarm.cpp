// Owners that tell their recipients of each other, over streams of any kind.
#include "engine.hpp"

#include <tensorpull/satellites/parallel/swarm/swarm_door.hpp>
#include <tensorpull/transports/host/owner.hpp>

namespace tensorpull::facade {

namespace {

using downloader = net<any_streams>::downloader;
using swarm_door_type = std::remove_cvref_t<decltype(*open_swarm_door<any_streams>(
    std::declval<downloader&>(), std::declval<const stream_place&>()))>;

/// An owner that listens at its door alone.
class swarm_owner : public owner_of<downloader> {
 public:
  using owner_of<downloader>::owner_of;
  result<void> open(const place& at, const host_options& options) noexcept {
    auto made = open_swarm_door<any_streams>(this->below(), stream_place{&at}, options);
    if (!made) return failure(made.error());
    swarm_.emplace(std::move(*made));
    return {};
  }
  std::uint16_t port() const noexcept override { return swarm_->port(); }
  std::size_t connections() const noexcept override {
    return owner_of<downloader>::connections() + swarm_->connections();
  }

 private:
  std::optional<swarm_door_type> swarm_;
};

}  // namespace

result<std::unique_ptr<any_owner>> open_stream_swarm(const place& at, const host_options& options) {
  if (!at.is.several) return failure(errc::unsupported_request);
  owner_options none{.host = options};
  if (!none.host.authorise) none.host.authorise = authorised_at(at);
  none.host.message_buffers = 1;  // nobody connects there
  auto opened = boxed_as<swarm_owner, swarm_owner>(downloader::open(none));
  if (!opened) return failure(opened.error());
  if (const auto ok = (*opened)->open(at, options); !ok) return failure(ok.error());
  return std::unique_ptr<any_owner>(std::move(*opened));
}

}  // namespace tensorpull::facade
