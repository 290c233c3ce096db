// The roles at the ends of a connection: what an endpoint and its drivers need of an owner, of a transfer and of a
// message handler. There are stand-ins for a role that an end does not play.
#pragma once

#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/core/limits.hpp>
#include <tensorpull/core/peer_identity.hpp>
#include <tensorpull/framing/frame.hpp>
#include <tensorpull/image/view.hpp>
#include <tensorpull/protocol/pending_reply.hpp>
#include <tensorpull/std/mutex.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace tensorpull {

/// How far a digest is that an owner computes.
enum class digest_state : std::uint8_t {
  ready,    ///< it is there, or it is not needed any more
  working,  ///< it is not: ask again at once, but after other connections
  waiting,  ///< it is not, and can go on only when time has passed at the owner (advance())
};

namespace detail {
// The meaning of each requirement stands at the concept. The lists are not silent where a role enters, so that their
// sentences precede the compiler's own about the uses of what is missing.

/// The requirements of an owner.
template <class O, bool Silent = true>
struct owner_requirements {
  static constexpr bool met_1 = requires { requires std::same_as<decltype(O::owns), const bool>; };
  static_assert(Silent || met_1,
                "tensorpull: an owner needs `static constexpr bool owns`: whether it answers requests (owner_role, 1)");

  static constexpr bool met_2 = met_1 && requires { typename O::lock_type; };
  static_assert(Silent || met_2 == met_1,
                "tensorpull: an owner needs `lock_type`: no_lock, or the lock that it takes (owner_role, 2)");

  static constexpr bool met_3 = met_2 && requires { requires is_bound({O::waiting_replies}); };
  static_assert(
      Silent || met_3 == met_2,
      "tensorpull: an owner needs `static constexpr std::size_t waiting_replies`, at least 1: answers that a connection may have waiting (owner_role, 3)");

  static constexpr bool met_4 = met_3 && requires {
    { typename O::peer() };
  };
  static_assert(
      Silent || met_4 == met_3,
      "tensorpull: an owner needs a type `peer`, default constructible: what it remembers of one connection (owner_role, 4)");

  static constexpr bool met_5 = met_4 && requires(O& o, const frame& m, pending_reply& r, const identity_source& who) {
    { o.handle(std::declval<typename O::peer&>(), m, r, who) } -> std::same_as<bool>;
  };
  static_assert(
      Silent || met_5 == met_4,
      "tensorpull: an owner needs `bool handle(peer&, const frame&, pending_reply&, const identity_source&)` (owner_role, 5)");

  static constexpr bool met_6 = met_5 && requires(O& o, const frame& m, std::span<byte_range> ranges, frame& answer,
                                                  const identity_source& who) {
    { o.locate(std::declval<typename O::peer&>(), m, ranges, answer, who) } -> std::same_as<digest_state>;
  };
  static_assert(
      Silent || met_6 == met_5,
      "tensorpull: an owner needs `digest_state locate(peer&, const frame&, std::span<byte_range>, frame&, const identity_source&)` (owner_role, 6)");

  static constexpr bool met_7 = met_6 && requires(O& o) { o.forget(std::declval<typename O::peer&>()); };
  static_assert(Silent || met_7 == met_6, "tensorpull: an owner needs `void forget(peer&)` (owner_role, 7)");

  static constexpr bool met_8 = met_7 && requires(O& o, const pending_reply& r) {
    { o.pin(r) } -> std::same_as<const source_view*>;
    o.unpin(r, std::uint64_t{});
    o.unreadable(r);
  };
  static_assert(
      Silent || met_8 == met_7,
      "tensorpull: an owner needs `const source_view* pin(const pending_reply&)`, `void unpin(const pending_reply&, std::uint64_t)` and `void unreadable(const pending_reply&)` (owner_role, 8)");

  static constexpr bool met_9 = met_8 && requires(O& o, pending_reply& r) {
    { o.expand(r) } -> std::same_as<frame>;
    o.refuse_gone(r);
  };
  static_assert(
      Silent || met_9 == met_8,
      "tensorpull: an owner needs `frame expand(const pending_reply&)` and `void refuse_gone(pending_reply&)` (owner_role, 9)");

  static constexpr bool met_10 = met_9 && requires(O& o, pending_reply& r, std::uint64_t& allowance,
                                                   std::span<std::byte> memory) {
    { o.digest(r, allowance, memory) } -> std::same_as<digest_state>;
  };
  static_assert(
      Silent || met_10 == met_9,
      "tensorpull: an owner needs `digest_state digest(pending_reply&, std::uint64_t& allowance, std::span<std::byte> memory)` (owner_role, 10)");
};

/// The requirements of a transfer.
template <class T, bool Silent = true>
struct transfer_requirements {
  static constexpr bool met_1 = requires {
    { T::read_piece_bytes } -> std::convertible_to<std::size_t>;
  };
  static_assert(Silent || met_1,
                "tensorpull: a transfer needs `static constexpr std::size_t read_piece_bytes` (transfer_role, 1)");

  static constexpr bool met_2 = met_1 && requires(T& t, frame& m) {
    { t.next(m) } -> std::same_as<bool>;
    { t.next_is_long() } -> std::same_as<bool>;
  };
  static_assert(Silent || met_2 == met_1,
                "tensorpull: a transfer needs `bool next(frame&)` and `bool next_is_long()` (transfer_role, 2)");

  static constexpr bool met_3 = met_2 && requires(T& t, const frame& m) { t.on(m); };
  static_assert(Silent || met_3 == met_2, "tensorpull: a transfer needs `void on(const frame&)` (transfer_role, 3)");

  static constexpr bool met_4 = met_3 && requires(T& t, const frame& m) {
    { t.on_chunk(m) } -> std::same_as<bool>;
  };
  static_assert(Silent || met_4 == met_3,
                "tensorpull: a transfer needs `bool on_chunk(const frame&)` (transfer_role, 4)");

  static constexpr bool met_5 = met_4 &&
                                requires(T& t, std::span<std::span<std::byte>> out, std::span<const std::byte> b) {
                                  { t.prepare(out, std::uint64_t{}) } -> std::same_as<prepared>;
                                  t.landed(b);
                                };
  static_assert(
      Silent || met_5 == met_4,
      "tensorpull: a transfer needs `prepared prepare(std::span<std::span<std::byte>>, std::uint64_t most)` and `void landed(std::span<const std::byte>)` (transfer_role, 5)");

  static constexpr bool met_6 = met_5 && requires(const T& t) {
    { t.awaiting_chunk() } -> std::same_as<bool>;
    { t.described() } -> std::same_as<bool>;
    { t.ended() } -> std::same_as<bool>;
  };
  static_assert(
      Silent || met_6 == met_5,
      "tensorpull: a transfer needs `bool awaiting_chunk() const`, `bool described() const` and `bool ended() const` (transfer_role, 6)");

  static constexpr bool met_7 = met_6 && requires(T& t, const T& c, const error& e) {
    t.fail(e);
    { c.next_id() } -> std::same_as<std::uint32_t>;
  };
  static_assert(
      Silent || met_7 == met_6,
      "tensorpull: a transfer needs `void fail(const error&)` and `std::uint32_t next_id() const` (transfer_role, 7)");
};

/// The requirements of a message handler.
template <class H, bool Silent = true>
struct handler_requirements {
  static constexpr bool met_1 = requires(H& h) {
    { h.ready() } -> std::convertible_to<bool>;
  };
  static_assert(
      Silent || met_1,
      "tensorpull: a message handler needs `bool ready()`: whether it can take a message now (message_handler, 1)");

  static constexpr bool met_2 = met_1 && requires(H& h, const frame& m) { h.on_message(m); };
  static_assert(Silent || met_2 == met_1,
                "tensorpull: a message handler needs `void on_message(const frame&)` (message_handler, 2)");
};
}  // namespace detail

/// An owner O, which an end serves. Models: owner, no_owner. No member throws.
///  1. `O::owns` is a constant of type bool: whether it answers requests at all (if not, no code for answers is
///     generated);
///  2. `O::lock_type` is the lock that it takes, and that its connections' buffers take (std/mutex.hpp);
///  3. `O::waiting_replies` is a constant: answers that one connection may have waiting, at least 1;
///  4. `O::peer` is default constructible: what the owner remembers about one connection;
///  5. `o.handle(peer, request, reply, who)` answers a request other than locate, and refuses one of a kind that
///     is_newer(); false: there is nothing to send.
///     `who` (identity_source) tells, if it is asked, which identity the other end has;
///  6. `o.locate(peer, request, ranges, answer, who)` answers a request for named tensors; the answer's ranges lie in
///     `ranges`. It gives a digest_state: `working`: there is no answer yet, and the same request has to be made again;
///  7. `o.forget(peer)` is called once, when the connection is gone;
///  8. `o.pin(reply)` gives the image behind a reply and keeps it in place, or nullptr if it is gone; `o.unpin(reply,
///     bytes)` lets go of it and tells how many bytes of payload were sent; `o.unreadable(reply)` tells that it could
///     not be read;
///  9. `o.expand(reply)` writes a reply out as a frame, while its image is pinned if it has one; `o.refuse_gone(reply)`
///     turns one whose image is gone into a refusal;
/// 10. `o.digest(reply, allowance, memory)` goes on with the digest of a chunk whose `chunk_digest` is not `none`, by
///     at most `allowance` bytes, which it takes off. `memory`: for bytes that are not in memory as they are; not
///     empty. It gives a digest_state; `ready`: `chunk_digest` is `none` now;
/// 11. optionally, `o.descriptors(reply)` gives the descriptors that the stream passes along with a description whose
///     `memory` is true. They stay open until the reply was sent;
/// 12. optionally, `o.renew(reply)`, for a reply that was partly sent when its image went: true if the same content is
///     published again and the reply is of that now.
template <class O>
concept owner_role = detail::owner_requirements<O>::met_10;

/// A transfer T, with which an end pulls. Models: transfer, relay_machine, no_transfer. No member throws; errors are
/// kept until it has ended.
///  1. `T::read_piece_bytes` is a constant: bytes of payload that one read should ask for;
///  2. `t.next(frame)` gives the next request to send; false: there is none now; `t.next_is_long()` is whether it may
///     be longer than 100 bytes;
///  3. `t.on(frame)` takes an answer other than a chunk;
///  4. `t.on_chunk(frame)` takes a chunk's prefix; false: its payload is thrown away;
///  5. `t.prepare(out, most)` gives memory for what is missing of the chunk; `t.landed(bytes)` is told what was written
///     into it;
///  6. `t.awaiting_chunk()`, `t.described()` and `t.ended()` are whether a chunk may arrive, whether the owner has
///     described what it has, and whether the transfer is over;
///  7. `t.fail(error)` ends it; `t.next_id()` is the first request id that it has not used;
///  8. optionally, `t.works()` is whether next() has done something else than to give a request, and wants to go on at
///     once; `t.take(descriptors)` is given those that arrived with the bytes that were read last (byte_stream, 7),
///     before they are looked at.
template <class T>
concept transfer_role = detail::transfer_requirements<T>::met_7;

/// A message handler H takes the messages of the program at the other end. Models: inbox, ignore_messages, a host's
/// connection.
///  1. `h.ready()` is whether it can take a message now; if not, the message and all that follows wait until the driver
///     calls parse();
///  2. `h.on_message(frame)` takes one; its views are valid during the call. It must not throw: its callers are
///     noexcept;
///  3. optionally, `H::takes_messages` is a constant: false if it drops them, so that a long one is refused and takes
///     no buffer.
template <class H>
concept message_handler = detail::handler_requirements<H>::met_2;

/// The owner role of an end that owns nothing: it answers no request and takes no memory. Its members are those of
/// owner_role.
struct no_owner {
  /// Nothing is remembered.
  struct peer {};
  using lock_type = no_lock;  ///< there is nothing to lock
  static constexpr bool owns = false;  ///< no request is answered
  static constexpr std::size_t waiting_replies = 1;  ///< the least that is allowed

  /// No answer.
  static constexpr bool handle(peer&, const frame&, pending_reply&, const identity_source& = {}) noexcept {
    return false;
  }
  /// A refusal.
  static constexpr digest_state locate(peer&, const frame& m, std::span<byte_range>, frame& answer,
                                       const identity_source& = {}) noexcept {
    return locate(m, answer);
  }
  /// The same for anybody: what an owner answers for a reference that nobody knows.
  static constexpr digest_state locate(const frame& m, frame& answer) noexcept {
    answer = {};
    answer.kind = frame_kind::refused;
    answer.status = status::unknown_reference;
    answer.id = m.id;
    answer.ref = m.ref;
    return digest_state::ready;
  }
  static constexpr void forget(peer&) noexcept {}  ///< does nothing
  static constexpr const source_view* pin(const pending_reply&) noexcept { return nullptr; }  ///< there is no image
  static constexpr void unpin(const pending_reply&, std::uint64_t) noexcept {}  ///< does nothing
  static constexpr void unreadable(const pending_reply&) noexcept {}  ///< does nothing
  static constexpr void refuse_gone(pending_reply&) noexcept {}  ///< does nothing
  /// There are no chunks.
  static constexpr digest_state digest(pending_reply&, std::uint64_t&, std::span<std::byte>) noexcept {
    return digest_state::ready;
  }
  /// An empty frame.
  static constexpr frame expand(const pending_reply&) noexcept { return {}; }
};

/// The transfer of an end that only owns: it asks for nothing and takes nothing. Its members are those of
/// transfer_role.
struct no_transfer {
  static constexpr std::size_t read_piece_bytes = 64 * 1024;  ///< not used: no chunk is taken
  static constexpr bool next(frame&) noexcept { return false; }  ///< no request
  static constexpr bool next_is_long() noexcept { return false; }  ///< no request
  static constexpr void fail(const error&) noexcept {}  ///< does nothing
  static constexpr void on(const frame&) noexcept {}  ///< does nothing
  static constexpr bool on_chunk(const frame&) noexcept { return false; }  ///< throws the payload away
  /// No memory.
  static constexpr prepared prepare(std::span<std::span<std::byte>>, std::uint64_t) noexcept { return {}; }
  static constexpr void landed(std::span<const std::byte>) noexcept {}  ///< does nothing
  static constexpr bool awaiting_chunk() noexcept { return false; }  ///< no chunk may arrive
  static constexpr bool described() noexcept { return false; }  ///< nothing was asked for
  static constexpr bool ended() noexcept { return true; }  ///< always
  static constexpr std::uint32_t next_id() noexcept { return 1; }  ///< no id was used
};

/// The message handler of an end that expects no messages: it drops them.
struct ignore_messages {
  static constexpr bool ready() noexcept { return true; }  ///< always
  static constexpr void on_message(const frame&) noexcept {}  ///< does nothing
};

namespace detail {

template <class H>
inline constexpr bool takes_messages = true;
template <class H>
  requires requires { H::takes_messages; }
inline constexpr bool takes_messages<H> = H::takes_messages;

static_assert(owner_role<no_owner> && transfer_role<no_transfer> && message_handler<ignore_messages>);

}  // namespace detail

}  // namespace tensorpull
