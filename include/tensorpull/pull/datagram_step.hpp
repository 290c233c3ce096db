// The step that moves datagrams between an endpoint and a link to one peer. Every driver that waits is a loop around
// it.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/protocol/datagrams/datagram_plan.hpp>
#include <tensorpull/pull/detail/take_datagram.hpp>

namespace tensorpull {

/// The result of one step.
struct datagrams_moved {
  std::size_t received = 0;  ///< datagrams that arrived
  std::size_t sent = 0;      ///< datagrams that the link took
  bool blocked = false;      ///< the link takes nothing now: wait for it to be writable
};

/// Datagrams that one step takes before it sends again: answers should not wait for long.
inline constexpr std::size_t most_datagrams_taken = 64;

namespace detail {

/// Where a datagram goes: to the one peer of the link. A link that reaches several owners of the same content has an
/// address `any_owner` besides, for what any of them may answer.
template <datagram_link Link>
constexpr typename Link::address destination_of(const datagram_plan& plan) noexcept {
  if constexpr (requires { Link::any_owner; })
    if (plan.for_any_owner) return Link::any_owner;
  return typename Link::address{};
}
/// Why a link can be used no more. One that knows more than that has `why()`.
template <datagram_link Link>
error end_of(const Link& link, const io_result& io) noexcept {
  if constexpr (requires { link.why(); }) return link.why();
  else return {io.status == io_status::failed ? errc::io : errc::connection_lost, io.system};
}

}  // namespace detail

/// One step of a connection over a link whose addresses are proved: takes the datagrams that are there, then sends what
/// there is to send. It does not wait. `end`: a datagram_endpoint. `t`: the transfer that it pulls with; no_transfer if
/// it only owns. `scratch`: as for datagram_endpoint::plan_datagram. Datagrams with something in them that no end sends
/// are dropped like lost ones. An error ends the connection: connection_lost, io.
template <class Endpoint, class Transfer, datagram_link Link>
  requires(Link::addresses_are_proved)
result<datagrams_moved> step_datagrams(Endpoint& end, Transfer& t, Link& link, std::span<std::byte> scratch,
                                       detail::datagram_memory<Link>& memory, typename Endpoint::time now) noexcept {
  const auto lost = [&](const io_result& io) { return failure(detail::end_of(link, io)); };
  datagrams_moved did;
  while (did.received < most_datagrams_taken && (did.received == 0 || !end.answers_wait())) {
    std::span<const std::byte> datagram;
    typename Link::address from{};
    const io_result io = detail::take_datagram(link, memory, datagram, from);
    if (io.status == io_status::would_block) break;
    if (io.status != io_status::ok) return lost(io);
    ++did.received;
    [[maybe_unused]] const auto heard = end.heard();
    [[maybe_unused]] const bool valid = end.received(t, datagram, now).has_value();
    if constexpr (requires { link.answer_last(valid); })
      if (valid) link.answer_last(end.heard() != heard);
  }
  for (;;) {
    typename Endpoint::plan_type plan;
    end.plan_datagram(t, plan, scratch, now);
    if (plan.bytes == 0) return did;
    const io_result io = detail::send_or_collect(link, std::span(plan.spans).first(plan.span_count),
                                                 detail::destination_of<Link>(plan));
    did.blocked = io.status == io_status::would_block;
    end.sent(t, plan, io.status == io_status::ok);
    if (did.blocked) return did;
    if (io.status != io_status::ok) return lost(io);
    ++did.sent;
  }
}

}  // namespace tensorpull
