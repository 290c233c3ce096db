// One pull over datagrams that waits on the caller's thread, and begins again with another link.
#pragma once

#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/protocol/datagrams/datagram_endpoint.hpp>
#include <tensorpull/protocol/datagrams/datagram_transfer.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/pull/datagram_wire.hpp>
#include <tensorpull/transports/blocking/stream_pull.hpp>

#include <array>

namespace tensorpull {

namespace detail {

/// One pull into a consumer, over datagrams.
template <class Parts, class Consumer>
using running_datagram_pull = running_pull<
    Parts, Consumer,
    datagram_transfer<Consumer, typename Parts::chunking, typename Parts::integrity, typename Parts::limits>>;

/// Bytes of memory for chunks that arrive before it is their turn, for a consumer that takes bytes in order.
inline constexpr std::size_t held_chunk_bytes = 32 * 1024;

/// Bytes of scratch memory that an endpoint over this link needs (datagram_endpoint::scratch_bytes).
template <datagram_link Link, class Limits>
inline constexpr std::size_t datagram_scratch_bytes = (2 * Link::max_datagram_bytes +
                                                       std::size_t{Limits::control_frame_bytes} + 7) /
                                                      8 * 8;

/// The longest datagram that arrives: a link whose two directions differ has `arriving_bytes()`.
template <datagram_link Link>
std::size_t longest_arriving(const Link& link) noexcept {
  if constexpr (requires { link.arriving_bytes(); }) return link.arriving_bytes();
  else return link.datagram_bytes();
}

/// Bytes of a buffer for the names of a subset, or for an answer that arrives in pieces. A pull has two.
template <class Limits>
inline constexpr std::size_t piece_buffer_bytes = (std::size_t{Limits::control_frame_bytes} + 63) / 64 * 64;

/// Bytes that a pull over this link has besides the transfer of a stream: what the window remembers, the endpoint, the
/// link, and memory for datagrams in both directions.
template <class Parts, datagram_link Link>
inline constexpr std::size_t datagram_pull_bytes =
    sizeof(
        datagram_transfer<null_consumer, typename Parts::chunking, typename Parts::integrity, typename Parts::limits>) -
    sizeof(transfer<null_consumer, typename Parts::chunking, typename Parts::integrity, typename Parts::limits>) +
    sizeof(datagram_endpoint<typename Parts::framing, typename Parts::limits, no_owner, ignore_messages>) +
    sizeof(Link) + sizeof(datagram_memory<Link>) + datagram_scratch_bytes<Link, typename Parts::limits> +
    held_chunk_bytes + 2 * piece_buffer_bytes<typename Parts::limits>;

}  // namespace detail

/// Pulls into a consumer over links of its own, as pull_with does over streams. `connect() -> result<Link>` makes a
/// link to one peer each time that one is needed; its addresses are proved (guest_link). Errors: those of `connect`, of
/// the protocol, and of the consumer; `at` is how many bytes landed. Allocates nothing. Leave out the last argument:
/// its type makes the compiler say what a consumer lacks.
template <class Parts, class Connect, class Pause, class Consumer>
result<receipt> pull_datagrams_with(Connect connect, Pause pause, const reference& ref, Consumer& to,
                                    const pull_options& options = {}, typename Parts::chunking chunking = {},
                                    detail::consumer_checks<Consumer> = {}) noexcept {
  if constexpr (!consumer<Consumer>) return failure(errc::bad_address);  // refused by the last argument
  else {
    using limits = typename Parts::limits;
    using platform_type = typename Parts::platform;
    using endpoint_type = datagram_endpoint<typename Parts::framing, limits, no_owner, ignore_messages>;
    using link_type = typename decltype(connect())::value_type;
    ignore_messages handler;
    const detail::nothing_else besides;
    const std::uint64_t number = platform_type::random();
    detail::running_datagram_pull<Parts, Consumer> pull(
        ref, to, options, chunking, static_cast<std::uint32_t>(number),
        options.recipient ? options.recipient : detail::random_recipient<platform_type>());
    alignas(8) std::array<std::byte, detail::held_chunk_bytes> held;
    pull.transfer().hold(held);
    const auto once = [&]() noexcept -> result<void> {
      auto link = connect();
      if (!link) return failure(link.error());
      no_owner none;
      constexpr std::size_t buffer_bytes = detail::piece_buffer_bytes<limits>;
      alignas(8) std::array<std::byte, 2 * buffer_bytes> memory;
      buffer_pool<> pool(memory, buffer_bytes);
      endpoint_type end(none, pool, handler, link->datagram_bytes(), platform_type::random());
      pull.transfer().fits(detail::longest_arriving(*link));
      if constexpr (requires { link_type::any_owner; }) pull.transfer().from_any_owner();
      alignas(8) std::array<std::byte, detail::datagram_scratch_bytes<link_type, limits>> scratch;
      detail::datagram_memory<link_type> come;
      detail::datagram_pull_wire<platform_type, endpoint_type, link_type> line(end, *link, scratch, come);
      return pull.drive(line, besides, pause);
    };
    return pull.run(once, pause);
  }
}

}  // namespace tensorpull
