// A pull over several connections at a time, on the caller's thread: to one owner, if loss slows each connection down,
// or to several owners of the same version.
#pragma once

#include <tensorpull/satellites/parallel/checked_transfer.hpp>
#include <tensorpull/satellites/parallel/detail/parallel_wire.hpp>
#include <tensorpull/satellites/parallel/parallel_transfer.hpp>
#include <tensorpull/satellites/parallel/several_addresses.hpp>
#include <tensorpull/transports/blocking/stream_pull.hpp>

#include <algorithm>
#include <span>

namespace tensorpull {

/// An address of `Transport`, over streams, that stands for several connections at a time: give it to a pull. With one
/// address they share its owner. With several, each of which publishes the same version under the same reference, each
/// owner gives as much as it can. The pull goes on as long as one connection works. It is one transfer: the owner of
/// the first connection counts this recipient and hears how it ended, and the others are told to forget it. After wrong
/// bytes of several owners all of them are.
///
/// The consumer's memory has to take bytes in any order (a model, a new model, a file); any other consumer is served by
/// several_addresses. The first owner's description and header are believed: if the consumer refuses them, so does the
/// pull. So are all bytes until the whole has its digest (parallel_transfer.hpp). With a root (pull_proved) the pull
/// completes if one of the owners is honest, and wrong() names the others. Borrows the addresses.
/// `Address`: text, or an object that connects, such as a tls_address. Memory, on the stack: 6 KiB for each of eight
/// connections, and their streams.
template <class Transport, class Address = std::string_view>
class parallel_addresses {
 public:
  static constexpr std::size_t most = 8;  ///< connections, and addresses that are used
  /// For pull_proved: parts of an image may be left out.
  static constexpr bool gives_some = true;

  /// `connections`: in all, at most `most`; 0: one to each address. `each`: the time for one address to connect.
  /// `tell`: called with each attempt, on the thread that pulls.
  explicit parallel_addresses(std::span<const Address> addresses, std::size_t connections = 0,
                              std::chrono::milliseconds each = std::chrono::seconds(10),
                              callback<const address_attempt&> tell = {}) noexcept
      : addresses_(addresses.first(std::min(addresses.size(), most))),
        connections_(std::min(connections != 0 ? connections : addresses_.size(), most)), each_(each), tell_(tell) {}

  std::span<const Address> addresses() const noexcept { return addresses_; }  ///< those that are used
  /// The addresses whose bytes were not those of the root in the last pull, a bit each from the lowest.
  std::uint8_t wrong() const noexcept { return wrong_; }

  /// For a transport: an address that pulls by itself. bad_address: there are none.
  template <class Parts, consumer Consumer>
  result<receipt> pull(const reference& ref, Consumer& to, const pull_options& options,
                       typename Parts::chunking chunking) const noexcept {
    wrong_ = 0;
    if (addresses_.empty()) return failure(errc::bad_address);
    using chunking_type = typename Parts::chunking;
    using limits_type = typename Parts::limits;
    if constexpr (requires { requires Consumer::wants_some; }) {
      using transfer_type = checked_transfer<Consumer, chunking_type, limits_type, short_parts>;
      return pull_by<Parts, transfer_type>(ref, to, options, chunking);
    } else {
      if constexpr (requires { requires Consumer::checks_groups; })
        if (to.group_bytes() != 0)
          return pull_by<Parts, checked_transfer<Consumer, chunking_type, limits_type>>(ref, to, options, chunking);
      if constexpr (requires { requires Consumer::any_order; }) {
        return pull_by<Parts, parallel_transfer<Consumer, chunking_type, typename Parts::integrity, limits_type>>(
            ref, to, options, chunking);
      } else {
        const several_addresses<Transport, Address> one(addresses_, each_, tell_);
        return Transport::template pull<Parts>(one, ref, to, options, chunking);
      }
    }
  }

 private:
  template <class Parts, class transfer_type, consumer Consumer>
  result<receipt> pull_by(const reference& ref, Consumer& to, const pull_options& options,
                          typename Parts::chunking chunking) const noexcept {
    using pull_type = detail::running_pull<Parts, Consumer, transfer_type>;
    pull_type pull(ref, to, options, chunking, 1,
                   options.recipient ? options.recipient : detail::random_recipient<typename Parts::platform>());
    detail::parallel_wire<Parts, Transport, Address, transfer_type, pull_options> lines(
        addresses_, connections_, each_, tell_, options, pull.transfer());
    const detail::nothing_else besides;
    const auto once = [&]() noexcept {
      lines.begin_anew();
      return pull.drive(lines, besides);
    };
    const auto how = pull.run(once, &detail::pause);
    if constexpr (requires { pull.transfer().wrong(); }) wrong_ = pull.transfer().wrong();
    return how;
  }

  std::span<const Address> addresses_;
  std::size_t connections_;
  std::chrono::milliseconds each_;
  callback<const address_attempt&> tell_;
  mutable std::uint8_t wrong_ = 0;  // a pull has a constant address
};

}  // namespace tensorpull
