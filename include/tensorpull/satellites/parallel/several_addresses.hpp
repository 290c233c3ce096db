// Several addresses where the same is published: a pull goes on at the next one when a connection cannot be made or is
// lost.
#pragma once

#include <tensorpull/core/error.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/protocol/retry.hpp>
#include <tensorpull/std/chrono.hpp>
#include <tensorpull/std/functional.hpp>
#include <tensorpull/std/stop_token.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tensorpull {

namespace detail {
/// Connects to an address that is text, or an object that makes the connection itself.
template <class Transport, class Address>
auto connect_to(const Address& a, std::chrono::milliseconds timeout, const stop_token& stop) noexcept {
  if constexpr (requires { a.connect(timeout, stop); }) return a.connect(timeout, stop);
  else return Transport::connect(a, timeout, stop);
}
}  // namespace detail

/// One attempt to have a connection.
struct address_attempt {
  std::size_t index = 0;    ///< which of the addresses
  std::uint32_t before = 0; ///< connections that were made before, of the same pull
  errc failed{};            ///< why there is no connection; errc{}: there is one
  std::int32_t system = 0;  ///< errno, if the operating system said so
};

/// An address of `Transport`, over streams, that stands for several: give it to a pull. The first connection is made to
/// the first address that takes one, and each later connection of the same pull to the one after that which was used
/// before. What has landed stays: the next owner has to publish the same version under the same reference, or the pull
/// ends as stale_version. An owner that does not know the reference ends the pull, too: current() says which. Borrows
/// the addresses. `Address`: text, or an object that connects, such as a tls_address.
template <class Transport, class Address = std::string_view>
class several_addresses {
 public:
  /// `each`: how long one address may take if there are others. `tell`: called with each attempt, on the thread that
  /// pulls.
  explicit several_addresses(std::span<const Address> addresses,
                             std::chrono::milliseconds each = std::chrono::seconds(10),
                             callback<const address_attempt&> tell = {}) noexcept
      : addresses_(addresses), each_(each), tell_(tell) {}

  /// Makes a connection, as the transport does. Tries each address once. Error: that of the last one after which
  /// another try may succeed, or else of the last one; cancelled at once; bad_address if there are no addresses.
  auto connect(std::chrono::milliseconds timeout, const stop_token& stop) const noexcept {
    using connection = decltype(detail::connect_to<Transport>(addresses_[0], timeout, stop));
    const auto time = addresses_.size() > 1 ? std::min(timeout, each_) : timeout;
    const std::size_t first = made_ == 0 ? current_ : current_ + 1;
    error why{errc::bad_address, 0, 0, {}};
    for (std::size_t i = 0; i < addresses_.size(); ++i) {
      current_ = (first + i) % addresses_.size();
      connection made = detail::connect_to<Transport>(addresses_[current_], time, stop);
      if (tell_) tell_({current_, made_, made ? errc{} : made.error().code, made ? 0 : made.error().system});
      if (made) {
        ++made_;
        return made;
      }
      if (is_passing(made.error().code) || !is_passing(why.code)) why = made.error();
      if (why.code == errc::cancelled || stop.stop_requested()) return connection(failure(why));
    }
    return connection(failure(why));
  }

  /// The address that was tried last.
  std::size_t current() const noexcept { return current_; }

 private:
  std::span<const Address> addresses_;
  std::chrono::milliseconds each_;
  callback<const address_attempt&> tell_;
  mutable std::size_t current_ = 0;  // a pull has a constant address
  mutable std::uint32_t made_ = 0;
};

}  // namespace tensorpull
