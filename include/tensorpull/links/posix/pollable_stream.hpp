// The requirements of an event loop on a byte stream, on a listener, and on the transport that has both. A transport
// that meets these requirements gets an owner of many connections from transports/host. testing/conformance checks
// them.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/links/byte_stream.hpp>

#include <string_view>
#include <type_traits>

namespace tensorpull {

/// Whether a stream is ready for the first byte, or still has to finish a connect or a handshake.
struct establishment {
  /// `ok`: ready; `would_block`: call establish() again when the descriptor is ready for one of `waits_for`; `closed`,
  /// `failed`: it failed.
  io_status status = io_status::ok;
  std::int32_t system = 0;  ///< errno of a failure; 0: none
  io_ready waits_for{};  ///< directions of the descriptor to wait for
  errc code = errc::connection_failed;  ///< what a failure is called
  std::string_view why{};  ///< its reason in words, which last as long as the program; none: there are no words
};

/// A pollable stream S, which an event loop waits for:
///  1. it is a byte_stream; the loop never calls its wait();
///  2. `s.native_handle()` is a descriptor that stays the same, belongs to the stream, and becomes ready when the
///     stream can continue;
///  3. after a read_some() that read fewer bytes than there was room for, the stream holds no bytes that the descriptor
///     would not announce (a stream that decrypts reads on until its own buffer is empty);
///  4. optionally, `s.establish() -> establishment`: never waits; called until it returns `ok`, before the first byte,
///     on accepted streams too. After an `ok` it returns that again;
///  5. optionally, `s.interest(wanted) -> io_ready`: the directions of the descriptor to wait for, so that the stream
///     can read or write as `wanted`. A TLS stream may have to write before it can read. Without it they are the wanted
///     ones;
///  6. optionally, `s.encrypted()`: whether it encrypts, if its transport has streams that do and others that do not.
template <class S>
concept pollable_stream = byte_stream<S> && requires(const S s) {
  { s.native_handle() } noexcept -> std::same_as<int>;
};

/// A listener L for streams S:
///  1. `l.accept() -> result<S>`: the next connection; never waits. Errors: timed_out: none is waiting; out_of_memory:
///     no descriptors or memory for it now, and the host tries again a little later; any other: the host waits for the
///     descriptor;
///  2. `l.native_handle()`: a descriptor that becomes readable when a connection waits;
///  3. movable; its destructor stops listening;
///  4. optionally, `l.port()`: the port that it listens on.
template <class L, class S>
concept stream_listener = std::movable<L> && requires(L l) {
  { l.accept() } noexcept -> std::same_as<result<S>>;
  { l.native_handle() } noexcept -> std::same_as<int>;
};

namespace detail {
/// The listener of a transport that has one of the two ways to say so; void if it has none.
template <class T>
struct listener_of {
  using type = void;
};
template <class T>
  requires requires { typename T::listener; }
struct listener_of<T> {
  using type = typename T::listener;
};
template <class T>
  requires(requires(std::string_view address) { T::listen(address); })
struct listener_of<T> {
  using type = std::remove_cvref_t<decltype(*T::listen(std::string_view{}))>;
};

/// An address that is more than text, and on which an owner can listen.
template <class Address, class Listener>
concept listens = requires(const Address& at) {
  { at.listen() } noexcept -> std::same_as<result<Listener>>;
};
}  // namespace detail

/// A transport policy T whose connections an event loop can serve:
///  1. `T::stream` is a pollable_stream;
///  2. `T::listen(address) -> result<L>` with a stream_listener L; or, if text is not enough to listen, `T::listener`
///     names L, and an address is an object with `listen() -> result<L>`;
///  3. `T::threads`: whether several threads may run the connections of one owner;
///  4. optionally, `T::resolve(address) -> result<A>`: where the other end may be, for a host's connect(). A is
///     movable. `a.more()`: whether an address is left; `a.start_connect() -> result<stream>`: begins to connect to the
///     next one and does not wait for the other end. An address that is an object has the same `resolve()`;
///  5. optionally, `T::connected(stream&)`: called once, when a connection that start_connect() began is established;
///  6. optionally, `T::any_address`: the address of an owner if its options name no address.
template <class T>
concept listening_transport = pollable_stream<typename T::stream> && requires {
  requires stream_listener<typename detail::listener_of<T>::type, typename T::stream>;
  { T::threads } -> std::convertible_to<bool>;
};

}  // namespace tensorpull
