// Owners that tell their recipients of each other, over streams of any kind, and such recipients.
#include "engine.hpp"

#include <tensorpull/satellites/parallel/swarm/swarm_door.hpp>
#include <tensorpull/satellites/parallel/swarm/swarm_member.hpp>
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

/// Members connect to each other by texts, so the link is one of two.
template <class Link>
class member_over final : public any_member {
  using member_net = net<Link>;
  using member_type = swarm_member<member_net>;
  static_assert(proof_bytes == member_type::proof_bytes);

 public:
  explicit member_over(member_type of) noexcept : of_(std::move(of)) {}
  static result<std::unique_ptr<any_member>> open(const place& owner, const place& at) noexcept {
    swarm_options how;
    how.host.max_connections = 256;
    how.host.room = {1, 256};
    return boxed_as<any_member, member_over>(member_type::open(at.address, owner.address, how));
  }
  result<receipt> pull(const reference& from, any_consumer& to, const pull_options& options,
                       std::uint64_t chunk_bytes) noexcept override {
    const auto done = member_net::pull(of_, from, to, options, any_chunks{chunk_bytes});
    pulled.add(done);
    return done;
  }
  bool serve(std::chrono::milliseconds time, const stop_token& stop) noexcept override { return of_.serve(time, stop); }
  std::uint64_t bytes_sent() noexcept override { return of_.bytes_sent(); }
  std::size_t most_members() const noexcept override { return of_.most_members(); }
  bool is_owner_wrong() const noexcept override { return (of_.wrong() & 1) != 0; }
  std::vector<std::string> wrong() const override {
    std::vector<std::string> all;
    for (std::size_t i = 1; i < detail::part_homes::seats; ++i)
      if ((of_.wrong() >> i & 1) != 0) all.emplace_back(of_.address_of(i));
    return all;
  }

 private:
  member_type of_;
};

}  // namespace

result<std::unique_ptr<any_member>> open_stream_member(const place& owner, const place& at) {
  if (owner.scheme == "tcp" && at.scheme == "tcp") return member_over<tcp>::open(owner, at);
  if (owner.scheme == "unix" && at.scheme == "unix") return member_over<unix_socket>::open(owner, at);
  return failure(errc::unsupported_request);
}

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
