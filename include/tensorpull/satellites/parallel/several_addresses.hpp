// Several addresses of one publication: when a connection cannot be made or is lost, the pull goes on at the next.
#pragma once

#include <tensorpull/core/error.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/protocol/retry.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/chrono.hpp>
#include <tensorpull/std/functional.hpp>
#include <tensorpull/std/stop_token.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tensorpull {

namespace detail {
/// Connects to an address that is text, or an object that connects.
template <class Transport, class Address>
auto connect_to(const Address& a, std::chrono::milliseconds timeout, const stop_token& stop) noexcept {
  if constexpr (requires { a.connect(timeout, stop); }) return a.connect(timeout, stop);
  else return Transport::connect(a, timeout, stop);
}
}  // namespace detail

/// One attempt to connect.
struct address_attempt {
  std::size_t index = 0;    ///< which of the addresses
  std::uint32_t before = 0; ///< connections that were made before, of the same pull
  errc failed{};            ///< errc{}: it is connected
  std::int32_t system = 0;  ///< errno, if there is one
};

/// An address of `Transport`, over streams, that stands for several: give it to a pull. The first connection is made to
/// the first address that accepts, and each later one of the same pull to the next. Landed bytes stay. The next
/// owner has to publish the same version under the same reference, or the pull ends as stale_version. An owner that
/// does not know the reference also ends the pull; current() is its index. Borrows the addresses. `Address`: text, or
/// an object that connects, such as a tls_address.
template <class Transport, class Address = std::string_view>
class several_addresses {
 public:
  /// `each`: the time for one address, if there are others. `tell`: called with each attempt, on the thread that pulls.
  explicit several_addresses(std::span<const Address> addresses,
                             std::chrono::milliseconds each = std::chrono::seconds(10),
                             callback<const address_attempt&> tell = {}) noexcept
      : addresses_(addresses), each_(each), tell_(tell) {}

  /// Makes a connection as the transport does, trying each address once. Error: that of the last address that may
  /// succeed later, otherwise of the last one; cancelled at once; bad_address if there are no addresses.
  auto connect(std::chrono::milliseconds timeout, const stop_token& stop) const noexcept {
    using connection = decltype(detail::connect_to<Transport>(addresses_[0], timeout, stop));
    const auto time = addresses_.size() > 1 ? std::min(timeout, each_) : timeout;
    const std::size_t first = made_ == 0 ? current_ : current_ + 1;
    error why{errc::bad_address};
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
