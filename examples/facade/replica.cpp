// Owners that help another one behind a balancer.
#include "engine.hpp"

#include <tensorpull/satellites/replica/replica_owner.hpp>

namespace tensorpull::facade {

result<std::unique_ptr<any_owner>> open_stream_replica(const place& at, const place& coordinator) {
  if (!at.is.several || at.kind != coordinator.kind) return failure(errc::unsupported_request);
  using replica = replica_of<net<any_streams>>;
  auto kept = std::make_unique<const place>(coordinator);
  auto opened = replica::open(stream_place{&at}, stream_place{kept.get()});
  return boxed_as<any_owner, owner_of<replica>>(std::move(opened), std::move(kept));
}

}  // namespace tensorpull::facade
