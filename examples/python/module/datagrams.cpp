// Links of datagrams: udp:// and serial:.
#include "in_datagrams.hpp"
#include "owner_by_turns.hpp"

#include <tensorpull/transports/over/serial/serial.hpp>
#include <tensorpull/transports/over/udp/udp.hpp>

namespace tensorpull::python {
namespace {

/// For an owner: UDP with a bell, so that a program's calls do not wait for the thread that serves.
struct udp_with_bell : datagram_transport<udp_with_bell, link_with_bell<udp_link>> {
  static constexpr std::string_view any_address = udp::any_address;
  static result<link> open(std::string_view address) noexcept {
    auto made = udp::open(address);
    return made ? result<link>(link(std::move(*made))) : result<link>(failure(made.error()));
  }
};

template <class Transport>
std::shared_ptr<any_owner> open_owner(const datagram_owner_options& options) {
  using downloader = typename datagram_net<Transport>::downloader;
  auto made = std::make_shared<owner_by_turns<downloader>>(0);
  made->of.emplace(value_or_raise(downloader::open(options)));
  if constexpr (requires { made->of->link().ring(); }) made->each.hurry = [o = made.get()] { o->of->link().ring(); };
  return made;
}

}  // namespace

result<receipt> pull_udp(std::string_view address, const reference& from, pull_target to, const pull_options& options,
                         chunks) noexcept {
  return pull_in_datagrams<udp>(address, from, to, options);
}
result<receipt> pull_serial(std::string_view address, const reference& from, pull_target to,
                            const pull_options& options, chunks) noexcept {
  return pull_in_datagrams<serial>(address, from, to, options);
}

std::shared_ptr<any_owner> open_udp(std::string_view listen, const host_options& host) {
  return open_owner<udp_with_bell>(peers_of(host, listen));
}
std::shared_ptr<any_owner> open_serial(std::string_view device, const host_options& host) {
  return open_owner<serial>(peers_of(host, device, 1));
}

made_session connect_udp(std::string_view address, const connect_options& options) noexcept {
  return connect_in_datagrams<udp>(address, options);
}
made_session connect_serial(std::string_view device, const connect_options& options) noexcept {
  return connect_in_datagrams<serial>(device, options);
}
std::shared_ptr<any_listener> listen_udp(std::string_view address) { return listen_in_datagrams<udp>(address); }
std::shared_ptr<any_listener> listen_serial(std::string_view device) { return listen_in_datagrams<serial>(device); }

}  // namespace tensorpull::python
