// What a host takes from its pipeline and its transport, and what it has where they name nothing.
#pragma once

#include <tensorpull/protocol/connection/endpoint.hpp>
#include <tensorpull/transports/publisher.hpp>

#include <string_view>
#include <type_traits>

namespace tensorpull::detail {

/// What a transport's connections speak: frames, unless it says otherwise.
template <class Parts, class Owner, class Handler>
struct endpoint_of {
  using type = endpoint<typename Parts::framing, typename Parts::limits, Owner, Handler>;
};
template <class Parts, class Owner, class Handler>
  requires requires { typename Parts::transport::template endpoint_type<Parts, Owner, Handler>; }
struct endpoint_of<Parts, Owner, Handler> {
  using type = typename Parts::transport::template endpoint_type<Parts, Owner, Handler>;
};

/// What publishes for a host's connections: its own, or another's. Only that of a whole pipeline takes models.
template <class Parts, class Lock>
constexpr auto publisher_of() noexcept {
  if constexpr (requires { typename Parts::shared_publisher; })
    return std::type_identity<typename Parts::shared_publisher>{};
  else if constexpr (requires { typename Parts::tensors; })
    return std::type_identity<publisher<Parts, Lock, Parts::limits::recipients>>{};
  else return std::type_identity<image_publisher<Parts, Lock, Parts::limits::recipients>>{};
}
/// What the connections of a host share: nothing, unless the transport says otherwise.
template <class Parts, class Lock>
struct shared_of {
  struct type {};
};
template <class Parts, class Lock>
  requires requires { typename Parts::transport::template shared_type<Parts, Lock>; }
struct shared_of<Parts, Lock> {
  using type = typename Parts::transport::template shared_type<Parts, Lock>;
};

/// Where a host of this transport connects to.
template <class Transport>
struct destinations_of {
  struct type {};  // it connects to nothing
};
template <class Transport>
  requires requires(std::string_view address) { Transport::resolve(address); }
struct destinations_of<Transport> {
  using type = std::remove_cvref_t<decltype(*Transport::resolve(std::string_view{}))>;
};

}  // namespace tensorpull::detail
