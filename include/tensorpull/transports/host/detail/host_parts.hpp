// The types that a host takes from its pipeline and its transport, and those that it has where they name none.
#pragma once

#include <tensorpull/protocol/connection/endpoint.hpp>
#include <tensorpull/transports/publisher.hpp>

#include <string_view>
#include <type_traits>

namespace tensorpull::detail {

/// The protocol of a transport's connections: frames, unless it names another.
template <class Parts, class Owner, class Handler>
struct endpoint_of {
  using type = endpoint<typename Parts::framing, typename Parts::limits, Owner, Handler>;
};
template <class Parts, class Owner, class Handler>
  requires requires { typename Parts::transport::template endpoint_type<Parts, Owner, Handler>; }
struct endpoint_of<Parts, Owner, Handler> {
  using type = typename Parts::transport::template endpoint_type<Parts, Owner, Handler>;
};

/// The publisher of a host's connections: its own, or another's. Only that of a whole pipeline takes models.
template <class Parts, class Lock>
constexpr auto publisher_of() noexcept {
  if constexpr (requires { typename Parts::shared_publisher; })
    return std::type_identity<typename Parts::shared_publisher>{};
  else if constexpr (requires { typename Parts::tensors; })
    return std::type_identity<publisher<Parts, Lock, Parts::limits::recipients>>{};
  else return std::type_identity<image_publisher<Parts, Lock, Parts::limits::recipients>>{};
}
/// An object that the connections of a host share: an empty one, unless the transport names another.
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
