// One end of a connection as a host drives it: what `endpoint` has, and what an end that speaks something else than
// frames over the same streams needs to have.
#pragma once

#include <tensorpull/core/requirements.hpp>
#include <tensorpull/core/spans.hpp>
#include <tensorpull/protocol/connection/write_plan.hpp>
#include <tensorpull/protocol/roles.hpp>

#include <concepts>
#include <utility>

namespace tensorpull {

namespace detail {

/// The requirements of a connection's end; their meaning stands at the concept.
template <class E, bool Silent = true, class Instead = nothing_instead>
struct connection_end_requirements : Instead {
  static constexpr bool met_1 = requires {
    { std::declval<typename E::pool_type&>().buffer_bytes() } -> std::same_as<std::size_t>;
    { std::declval<typename E::plan_type&>().spans.data() } -> std::convertible_to<const std::span<const std::byte>*>;
    { std::declval<typename E::plan_type&>().span_count } -> std::convertible_to<std::size_t>;
    { std::declval<typename E::plan_type&>().bytes } -> std::convertible_to<std::size_t>;
    { std::declval<typename E::plan_type&>().descriptors } -> std::convertible_to<std::span<const int>>;
  };
  static_assert(
      Silent || met_1,
      "tensorpull: a connection's end needs `pool_type`, a buffer_pool, and `plan_type`, a basic_write_plan (connection_end, 1)");

  static constexpr bool met_2 = met_1 && requires(E& e, no_transfer& t, std::span<std::byte> scratch, std::size_t n) {
    { e.plan_write(t, std::declval<typename E::plan_type&>(), scratch, n) } -> std::same_as<result<void>>;
    { e.written(t, std::declval<typename E::plan_type&>(), n) } -> std::same_as<result<void>>;
  };
  static_assert(
      Silent || met_2 == met_1,
      "tensorpull: a connection's end needs `result<void> plan_write(transfer&, plan_type&, std::span<std::byte> scratch, std::size_t most)` and `result<void> written(transfer&, const plan_type&, std::size_t n)` (connection_end, 2)");

  static constexpr bool met_3 = met_2 && requires(E& e, no_transfer& t, std::span<std::span<std::byte>> room,
                                                  scatter_list filled, std::size_t n) {
    { e.plan_read(t, room, n) } -> std::same_as<std::size_t>;
    e.arrived(t, filled, n);
    { e.parse(t) } -> std::same_as<result<void>>;
  };
  static_assert(
      Silent || met_3 == met_2,
      "tensorpull: a connection's end needs `std::size_t plan_read(transfer&, std::span<std::span<std::byte>>, std::size_t most)`, `void arrived(transfer&, scatter_list, std::size_t n)` and `result<void> parse(transfer&)` (connection_end, 3)");

  static constexpr bool met_4 = met_3 && requires(E& e, const E& c, const no_transfer& t) {
    e.begin_pull();
    e.end_pull(t);
    { c.next_id() } -> std::same_as<std::uint32_t>;
  };
  static_assert(
      Silent || met_4 == met_3,
      "tensorpull: a connection's end needs `void begin_pull()`, `void end_pull(const transfer&)` and `std::uint32_t next_id() const` (connection_end, 4)");

  static constexpr bool met_5 = met_4 && requires(E& e, const frame& m, std::span<const reference> references,
                                                  std::span<const std::byte> body) {
    { e.send_message(std::uint32_t{}, references, body) } -> std::same_as<result<void>>;
    { e.send_control(m) } -> std::same_as<bool>;
  };
  static_assert(
      Silent || met_5 == met_4,
      "tensorpull: a connection's end needs `result<void> send_message(std::uint32_t kind, std::span<const reference>, std::span<const std::byte> body)` and `bool send_control(const frame&)` (connection_end, 5)");

  static constexpr bool met_6 = met_5 && requires(const E& c) {
    { c.output_ready() } -> std::same_as<bool>;
    { c.output_idle() } -> std::same_as<bool>;
    { c.works() } -> std::same_as<bool>;
    { c.awaits_time() } -> std::same_as<bool>;
    { c.stalled() } -> std::same_as<bool>;
  };
  static_assert(
      Silent || met_6 == met_5,
      "tensorpull: a connection's end needs `bool output_ready() const`, `bool output_idle() const`, `bool works() const`, `bool awaits_time() const` and `bool stalled() const` (connection_end, 6)");

  static constexpr bool met_7 = met_6 && requires(const E& c) {
    { c.heard() } -> std::same_as<std::uint32_t>;
    { c.mid_frame() } -> std::same_as<bool>;
    { c.long_frame() } -> std::same_as<std::uint32_t>;
  };
  static_assert(
      Silent || met_7 == met_6,
      "tensorpull: a connection's end needs `std::uint32_t heard() const`, `bool mid_frame() const` and `std::uint32_t long_frame() const` (connection_end, 7)");

  static constexpr bool met_8 = met_7 && requires(E& e) {
    e.doubt();
    e.trust();
  };
  static_assert(Silent || met_8 == met_7,
                "tensorpull: a connection's end needs `void doubt()` and `void trust()` (connection_end, 8)");

  static constexpr bool met_9 = met_8 && requires(E& e) { e.closed(); };
  static_assert(Silent || met_9 == met_8, "tensorpull: a connection's end needs `void closed()` (connection_end, 9)");
};

}  // namespace detail

/// A connection's end E turns bytes into questions to its owner, and answers into bytes, without I/O. Models: endpoint,
/// and the end that an owner over HTTP has. A host makes one for each connection, of the owner, of a pool of buffers
/// and of a message handler, all borrowed; it drives it on one thread at a time. No member throws or waits. `t` is a
/// transfer (transfer_role): no_transfer, unless the connection pulls.
///  1. `E::pool_type` is where its buffers come from (buffer_pool); `E::plan_type` is one gather write: `spans`,
///     `span_count`, `bytes` in all of them, and `descriptors` (basic_write_plan);
///  2. `e.plan_write(t, plan, scratch, most)` collects what to write, about `most` bytes; `e.written(t, plan, n)` is
///     told how many of them the stream took, once for each plan that is not empty. An error ends the connection;
///  3. `e.plan_read(t, spans, most)` gives spans to read into, and how many; 0: do not read now. `e.arrived(t, spans,
///     n)` is told how many bytes arrived; `e.parse(t)` looks at them, and goes on with what waited for memory. An
///     error ends the connection;
///  4. `e.begin_pull()`: answers may arrive from now on; `e.end_pull(t)`: the transfer is not used any more;
///     `e.next_id()` is the first request id of the next one;
///  5. `e.send_message(kind, references, body)` queues a message; `e.send_control(frame)` a short frame; false: there
///     is no room now;
///  6. `e.output_ready()`: there is something to write now; `e.output_idle()`: everything has been handed to the
///     stream; `e.works()`: take another step at once, but let other connections go first; `e.awaits_time()`: it goes
///     on when time has passed at the owner; `e.stalled()`: what has arrived waits for memory;
///  7. `e.heard()` grows with everything of the peer's that counts; `e.mid_frame()`: the peer has begun something and
///     not finished it; `e.long_frame()` is the number of what it sends into a buffer, 0 if nothing: budgets judge a
///     connection by these;
///  8. `e.doubt()`: no buffer is taken for the peer's frames before it has shown something; `e.trust()` ends that;
///  9. `e.closed()` frees what it holds at the owner and in the pool; neither is used afterwards;
/// 10. optionally, `e.holds_back()`: it reads no more until the peer has taken an answer, and waits for no memory;
///     `e.said_all()`, once: everything has been sent, and bytes that still arrive are thrown away.
template <class E>
concept connection_end = detail::connection_end_requirements<E>::met_9;

}  // namespace tensorpull
