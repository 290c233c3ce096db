// The end that pulls over datagrams: what its transfer has besides the role, how its requests for chunks fill a
// datagram, and how a chunk in a datagram lands.
#pragma once

#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/framing/concept.hpp>
#include <tensorpull/framing/detail/payload_prefix.hpp>
#include <tensorpull/protocol/datagrams/detail/datagram_writer.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/chrono.hpp>

#include <array>
#include <concepts>
#include <cstring>

namespace tensorpull::detail {

/// The members of a transfer over datagrams besides transfer_role: the time, and requests for chunks apart from the
/// others (datagram_transfer).
template <class T>
concept datagram_transfer_role = requires(T& t, const T& c, frame& request, bool& last, std::chrono::microseconds now) {
  t.at(now);
  { c.wakes(now) } -> std::same_as<std::chrono::microseconds>;
  { c.expects(std::uint32_t{}) } -> std::same_as<bool>;
  { c.batch() } -> std::same_as<std::uint32_t>;
  { c.wants_pulls(now) } -> std::same_as<bool>;
  { t.next_pull(request, last, now) } -> std::same_as<bool>;
  t.not_sent(std::uint32_t{}, std::uint32_t{});
};

/// Adds requests for chunks, as many as fit and as may leave now.
template <framing Framing, datagram_transfer_role Transfer>
void plan_pull_requests(Transfer& t, datagram_writer& out, std::chrono::microseconds now) noexcept {
  if (t.ended() || !t.wants_pulls(now)) return;
  const bool alone = out.plan.bytes == 0;
  bool any = true, last = false;
  frame m;
  while (out.room >= payload_prefix::bytes && out.plan.pulls < t.batch() && out.has_spans() &&
         t.next_pull(m, last, now)) {
    out.align();
    const auto n = Framing::encode(m, out.scratch);
    if (!n) break;
    if (out.plan.pulls++ == 0) out.plan.first_pull = m.id;
    any = any && !last;
    out.add(out.take(*n));
  }
  out.plan.for_any_owner = alone && any && out.plan.pulls > 0;
}

/// Copies a chunk's payload to where the transfer wants it.
template <class Transfer>
void land_copied(Transfer& t, std::span<const std::byte> payload) noexcept {
  std::array<std::span<std::byte>, 16> room;
  while (!payload.empty()) {
    const prepared p = t.prepare(room, payload.size());
    if (p.bytes == 0) return;
    for (std::size_t i = 0; i < p.pieces && !t.ended(); ++i) {
      const std::size_t n = std::min(room[i].size(), payload.size());
      std::memcpy(room[i].data(), payload.data(), n);
      payload = payload.subspan(n);
      t.landed(room[i].first(n));
    }
    if (t.ended()) return;
  }
}

}  // namespace tensorpull::detail
