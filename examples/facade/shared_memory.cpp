// Memory that two programs of one machine share: links, and views of what is published there.
#include "engine.hpp"

#include <tensorpull/satellites/shared_memory/shared_memory.hpp>
#include <tensorpull/transports/host/owner.hpp>
#include <tensorpull/transports/session/stream_session.hpp>

namespace tensorpull::facade {
namespace {

using memory = shared_memory_on_threads;
using memory_net = net<memory>;

result<receipt> pull_memory(any_pull& how, const reference& ref, any_consumer& to, const pull_options& options) {
  return pull_over<memory>(std::string_view(how.from.front().address), how, ref, to, options);
}
result<std::unique_ptr<any_owner>> own_memory(const place& at, const host_options& host) {
  return boxed_as<any_owner, owner_of<memory_net::downloader>>(
      memory_net::downloader::open({.listen = at.address, .host = host}));
}
result<std::unique_ptr<any_session>> connect_memory(const place& to, const connect_options& how) {
  return boxed_session<memory_net>(memory_net::session::connect(std::string_view(to.address), how));
}
result<any_listener> listen_memory(const place& at) { return listen_with<memory_net>(memory::listen(at.address)); }
result<any_view> view_memory(const place& at, const reference& ref, const view_settings& how,
                             const pull_options& options) {
  const auto seen = std::make_shared<viewed_tensors>(nullptr, how.writable,
                                                     view_limits{how.max_header_bytes, how.max_tensors});
  const auto opened = memory::view<memory_net::parts>(at.address, ref, *seen, options);
  if (!opened) return failure(opened.error());
  return any_view{seen->tensors(), seen->memory(), seen->owner_can_write(), *opened, seen};
}

}  // namespace

extern const link_kind link_shm{.name = "shm",
                                .is = {.path = true, .listens = true, .viewed = true},
                                .pull = &pull_memory,
                                .own = &own_memory,
                                .connect = &connect_memory,
                                .listen = &listen_memory,
                                .view = &view_memory};

}  // namespace tensorpull::facade
