#include "serve_http.hpp"

#include <tensorpull/satellites/replica/replica_owner.hpp>
#include <tensorpull/satellites/shared_memory/shared_memory.hpp>
#include <tensorpull/transports/host/owner.hpp>
#include <tensorpull/transports/over/pipe/pipe.hpp>
#include <tensorpull/transports/over/unix_socket/unix_socket.hpp>

namespace tools {

serving serve_over_streams(const link_choice& link) {
  const std::string_view where = link.address;
  if (!link.coordinator.empty()) {
    if (link.scheme == link_scheme::unix_url)
      return serve_owner(tp::replica_of<sending<tp::unix_socket>>::open(where, std::string_view(link.coordinator)));
    return serve_owner(tp::replica_of<sending<tp::tcp>>::open(where, std::string_view(link.coordinator)));
  }
  const auto as_text = [](std::string_view address) { return address; };
  switch (link.scheme) {
    case link_scheme::unix_url:
      return serve_owner_and_http<tp::tcp>(sending<tp::unix_socket>::downloader::open({.listen = where}), link.door,
                                           as_text);
    case link_scheme::shm_url: return serve_owner(sending<tp::shared_memory>::downloader::open({.listen = where}));
    case link_scheme::pipe_url:
      return where == "-" ? serve_session(sending<tp::standard_streams>::session::connect(where))
                          : serve_session(sending<tp::child_process>::session::connect(where));
    default:
      return serve_owner_and_http<tp::tcp>(sending<tp::tcp>::downloader::open({.listen = where}), link.door, as_text);
  }
}

}  // namespace tools
