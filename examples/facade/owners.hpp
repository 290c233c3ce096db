// An owner over streams of any kind.
#pragma once

#include "engine.hpp"

#include <tensorpull/transports/host/owner.hpp>

namespace tensorpull::facade {

class owner_over_streams final : public owner_of<net<any_streams>::downloader> {
 public:
  using downloader = net<any_streams>::downloader;
  owner_over_streams(downloader d, const place& at, const host_options& options)
      : owner_of(std::move(d)), host(options), at_(at) {}

  std::size_t connections() const noexcept override {
    return owner_of::connections() + (door_.connections ? door_.connections() : 0);
  }
  result<std::uint16_t> open_door(const door_settings& door) override;

  // For a door.
  downloader& below() noexcept { return end; }
  const host_options host;

 private:
  place at_;
  opened_door door_;  // ends before the owner
};

}  // namespace tensorpull::facade
