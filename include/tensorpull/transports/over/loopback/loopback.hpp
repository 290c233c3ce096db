// Owner and recipient in one process, on one thread, without sockets: payloads are copied once, from tensor to tensor.
// For small machines, and for tests of a model's schema.
#pragma once

#include <tensorpull/protocol/recipient/transfer.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/transports/blocking/stream_pull.hpp>
#include <tensorpull/transports/concept.hpp>
#include <tensorpull/transports/publisher.hpp>

#include <cstring>
#include <utility>

namespace tensorpull {

namespace detail {

/// Copies from one list of spans to another, and returns the number of bytes copied.
inline std::size_t copy_spans(gather_list from, scatter_list to) noexcept {
  std::size_t total = 0, i = 0, k = 0, i_at = 0, k_at = 0;
  while (i < from.size() && k < to.size()) {
    const std::size_t n = std::min(from[i].size() - i_at, to[k].size() - k_at);
    if (n > 0) std::memcpy(to[k].data() + k_at, from[i].data() + i_at, n);
    total += n;
    if ((i_at += n) == from[i].size()) {
      ++i;
      i_at = 0;
    }
    if ((k_at += n) == to[k].size()) {
      ++k;
      k_at = 0;
    }
  }
  return total;
}

/// One direction of a loopback connection: moves the frames of `from` to `to`, and returns the number of bytes moved.
template <class From, class FromTransfer, class To, class ToTransfer>
result<std::size_t> move_frames(From& from, FromTransfer& from_transfer, To& to, ToTransfer& to_transfer,
                                std::span<std::byte> scratch, std::size_t piece) noexcept {
  typename From::plan_type plan;
  if (const auto ok = from.plan_write(from_transfer, plan, scratch, 1); !ok) return failure(ok.error());
  std::size_t done = 0;
  result<void> took{};
  while (done < plan.bytes) {
    std::span<std::byte> room[32];
    const std::size_t n = to.plan_read(to_transfer, room, piece);
    // the rest of the plan: only its first span is cut, so that the list need not be copied
    std::size_t skip = done, first = 0;
    while (skip >= plan.spans[first].size()) skip -= plan.spans[first++].size();
    const auto head = std::exchange(plan.spans[first], plan.spans[first].subspan(skip));
    const std::size_t moved = copy_spans({plan.spans.data() + first, plan.span_count - first}, {room, n});
    plan.spans[first] = head;
    done += moved;
    if (moved == 0) break;
    if (took = to.received(to_transfer, {room, n}, moved); !took) break;
  }
  const auto ok = from.written(from_transfer, plan, done);
  if (!took) return failure(took.error());
  if (!ok) return failure(ok.error());
  return done;
}

}  // namespace detail

/// A pipeline's `downloader` without a network. Give it to download_tensors as the address.
template <class Parts>
class loopback_owner : public publisher<Parts> {
 public:
  /// The buffer for bytes to be sent that are not in memory as they are.
  std::span<std::byte> scratch() noexcept { return scratch_; }

 private:
  alignas(64) std::array<std::byte, 8 * 1024> scratch_;
};

/// Policy for the transport slot.
struct loopback : reliable_transport {
  static constexpr std::size_t connection_bytes = 0;
  static constexpr bool shares_memory = true;

  /// A pull has both ends, and buffers for a request by name at either of them and for the answer. Both are as long as
  /// a page at most.
  template <class Parts>
  static constexpr std::size_t buffers = 3 * ((Parts::limits::page_bytes + 7) / 8 * 8);
  /// The memory of a pull besides its consumer and its destination.
  template <class Parts>
  static constexpr std::size_t pull_bytes =
      2 * sizeof(endpoint<typename Parts::framing, typename Parts::limits, typename loopback_owner<Parts>::owner_type,
                          ignore_messages>) +
      buffers<Parts>;

  template <class Parts>
  using downloader = loopback_owner<Parts>;
  /// None: both ends are in one process, so there is no connection.
  template <class Parts>
  using session = no_session<loopback>;

  /// Runs both ends until the transfer has ended. All state is on the stack; smaller limits (page_bytes) make it
  /// smaller.
  template <class Parts, class Owner, consumer Consumer>
    requires requires(Owner& o) {
      o.machine();
      o.scratch();
      o.tick();
      o.deliver();
    }
  static result<receipt> pull(Owner& from, const reference& ref, Consumer& to, const pull_options& options,
                              typename Parts::chunking chunking) noexcept {
    ignore_messages handler;
    using limits = typename Parts::limits;
    no_transfer nothing;
    alignas(64) std::byte memory[buffers<Parts>];
    buffer_pool<> pool(memory, buffers<Parts> / 3);
    // the recipient's end needs no owner, but with one both ends are the same class, which saves code; it is never
    // asked for anything
    using end_type = endpoint<typename Parts::framing, limits, typename Owner::owner_type, ignore_messages>;
    end_type owner_end(from.machine(), pool, handler), end(from.machine(), pool, handler);
    detail::running_pull<Parts, Consumer> all(ref, to, options, chunking, 1);
    auto& t = all.transfer();
    constexpr std::size_t piece = std::remove_reference_t<decltype(t)>::read_piece_bytes;
    end.begin_pull();
    while (!t.ended() && !all.stopped()) {
      const auto asked = detail::move_frames(end, t, owner_end, nothing, from.scratch(), piece);
      const auto answered = asked ? detail::move_frames(owner_end, nothing, end, t, from.scratch(), piece)
                                  : result<std::size_t>(failure(asked.error()));
      all.note();
      if (!answered) t.fail(answered.error());
      else if (t.pause().count() > 0) t.fail({errc::busy});
      else if (*asked + *answered > 0 || owner_end.works()) continue;
      else if (owner_end.awaits_time()) from.tick();
      else t.fail({errc::busy});  // the consumer has no memory, and nothing else in this thread can free any
    }
    if (const auto bye = t.farewell(); bye && end.send_control(*bye))
      (void)detail::move_frames(end, t, owner_end, nothing, from.scratch(), piece);
    from.tick();  // nobody else does: how this one has ended is told, so that its record may be used again
    return all.outcome();
  }
};

}  // namespace tensorpull
