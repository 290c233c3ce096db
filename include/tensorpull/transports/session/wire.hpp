// A session's knowledge of a kind of link, as a concept: stream_session.hpp and datagram_session.hpp have a model each.
#pragma once

#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/core/buffer_pool.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/pull/running_pull.hpp>
#include <tensorpull/std/chrono.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

/// The directions of one step of a session.
enum class session_moves : std::uint8_t {
  everything,  ///< bytes in both directions
  one_answer_first,  ///< the same, and the first answer is not held back for others
  /// bytes to be sent; those that have arrived may stay where they are. A step that sends everything after it has
  /// received needs no difference.
  what_is_due,
};

/// A wire W is a session's knowledge of a kind of link. It owns one link, and moves the bytes of one end of a
/// connection over it. `scratch` is memory of `W::scratch_bytes`. No call throws or allocates:
///  1. `W::link_type` is the link. W is made of one, and `w.link()` gives it;
///  2. `W::end<Owner, Handler>` is an end in both roles (endpoint, datagram_endpoint), which does not move, and
///     `w.make_end<Owner>(owner, pool, handler)` makes one;
///  3. `W::scratch_bytes` and `W::buffer_bytes` are constants: bytes of scratch memory, and of the buffers within W;
///  4. `w.step(end, transfer, scratch, moves)` moves what can be moved now, without waiting, and returns how much
///     (`received`, `sent`). `moves` (session_moves): in which directions. An error ends the connection;
///  5. `w.goes_on(did)` is whether another step can move something at once; if not, `w.wait(end, did, most)` waits
///     until one can, at most that long;
///  6. `w.leave()`: what a step has collected leaves;
///  7. `w.resume(end)` takes what the end has kept because there was no room for a message, without the link;
///  8. `W::pull<Consumer>` is the state of a pull (running_pull), `w.prepare(pull)` is called once for each, and
///     `w.drive(pull, end, scratch, besides)` is one try, as running_pull::drive;
///  9. `W::messages_block` is a constant: whether a message that is not taken keeps back those behind it;
/// 10. optionally `W::connect(address, timeout, stop)` gives a link for an address in text, and `W::open(address)` the
///     link of an end that is called; then `W::of<Link>` is the wire over that.
template <class W>
concept session_wire = requires(W w, typename W::template end<no_owner, ignore_messages>& e, no_owner& o,
                                buffer_pool<>& p, ignore_messages& h, no_transfer& t, std::span<std::byte> scratch,
                                typename W::template pull<detail::null_consumer>& pull,
                                const detail::nothing_else& besides) {
  { w.link() } -> std::same_as<typename W::link_type&>;
  { w.template make_end<no_owner>(o, p, h) } -> std::same_as<typename W::template end<no_owner, ignore_messages>>;
  requires std::same_as<decltype(W::scratch_bytes), const std::size_t>;
  requires std::same_as<decltype(W::buffer_bytes), const std::size_t>;
  { w.step(e, t, scratch, session_moves::everything)->sent } -> std::convertible_to<std::size_t>;
  { w.goes_on(*w.step(e, t, scratch, session_moves::everything)) } -> std::same_as<bool>;
  w.wait(e, *w.step(e, t, scratch, session_moves::everything), std::chrono::milliseconds{});
  w.leave();
  { w.resume(e) } -> std::same_as<result<void>>;
  w.prepare(pull);
  { w.drive(pull, e, scratch, besides) } -> std::same_as<result<void>>;
  requires std::same_as<decltype(W::messages_block), const bool>;
};

}  // namespace tensorpull
