// The transport slot of a pipeline: everything that a policy must have. For a policy over a byte stream,
// over/stream_transport.hpp has most of it.
#pragma once

#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/core/limits.hpp>
#include <tensorpull/core/peer_identity.hpp>
#include <tensorpull/core/requirements.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/std/chrono.hpp>
#include <tensorpull/std/stop_token.hpp>
#include <tensorpull/transports/pull_options.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace tensorpull {

namespace detail {
/// The requirements of a transport that can be seen without a pipeline; their meaning stands at the concept.
template <class T, bool Silent = true, class Instead = nothing_instead>
struct transport_requirements : Instead {
  static constexpr bool met_1 = requires { typename T::is_transport_policy; };

  static constexpr bool met_2 = met_1 && requires {
    requires __is_same(decltype(T::max_payload_bytes), const std::uint64_t);  // what is_same_v is made of
  };
  static_assert(
      Silent || met_2 == met_1,
      "tensorpull: a transport says how much one frame carries (requirement 2): static constexpr std::uint64_t max_payload_bytes");

  static constexpr bool met_3 = met_2 &&
                                requires { requires __is_same(decltype(T::connection_bytes), const std::size_t); };
  static_assert(
      Silent || met_3 == met_2,
      "tensorpull: a transport says what it keeps for a connection (requirement 3): static constexpr std::size_t connection_bytes");

  static constexpr bool met_4 = met_3 && requires {
    requires __is_same(decltype(T::reliable), const bool);
    requires __is_same(decltype(T::ordered), const bool);
    requires __is_same(decltype(T::shares_memory), const bool);
    requires __is_same(decltype(T::encrypted), const bool);
    requires __is_same(decltype(T::anyone_answers), const bool);
    requires __is_same(decltype(T::identifies), const identity_kind);
  };
  static_assert(
      Silent || met_4 == met_3,
      "tensorpull: a transport says what it is (requirement 4): static constexpr bool reliable, ordered, shares_memory, encrypted, "
      "anyone_answers; static constexpr identity_kind identifies");
};
/// The same with those that depend on the pipeline. Requirement 7, `pull`, depends on the type of its address, so it is
/// checked at the call.
template <class T, class Parts, bool Silent = true, class Instead = nothing_instead>
struct transport_in_pipeline_requirements : Instead {
  static constexpr bool met_4 = transport_requirements<T>::met_4;

  static constexpr bool met_5 = met_4 && requires { typename T::template downloader<Parts>; };
  static_assert(
      Silent || met_5 == met_4,
      "tensorpull: a transport names its owner (requirement 5): template <class Parts> using downloader = ...;");

  static constexpr bool met_6 = met_5 && requires { typename T::template session<Parts>; };
  static_assert(
      Silent || met_6 == met_5,
      "tensorpull: a transport names its connection for both sides (requirement 6): template <class Parts> using session = ...;");
};
}  // namespace detail

/// A transport policy T, as far as it can be seen without a pipeline:
///  1. `T::is_transport_policy` names a type;
///  2. `T::max_payload_bytes` (a static constexpr std::uint64_t): the longest chunk that one frame of this transport
///     carries;
///  3. `T::connection_bytes` (a static constexpr std::size_t): memory that the transport keeps for each connection
///     besides the library's 2 KiB;
///  4. what it is, as constants that a pipeline checks its other policies against. Five are a static constexpr bool:
///     `T::reliable` (what arrives is what was sent, or the connection is lost), `T::ordered` (nothing overtakes what
///     was sent before), `T::shares_memory` (both ends are on one machine, and the owner's bytes are mapped),
///     `T::encrypted` (nobody between the ends reads along), `T::anyone_answers` (a request goes to a name that others
///     than the owner may listen to, so that one of them can answer first: a pull needs a version then, see
///     pull_options::believe). `T::identifies` (a static constexpr identity_kind) is what proves who the other end is.
template <class T>
concept transport = detail::transport_requirements<T>::met_4;

/// The same in a pipeline, whose resolved policies are `Parts` (pipeline.hpp):
///  5. `T::downloader<Parts>` names the owner's side;
///  6. `T::session<Parts>` names the driver of one connection in both roles; a transport that has none names
///     `no_session<T>`;
///  7. `T::pull<Parts>(where, ref, consumer, options, chunking)` connects, pulls, closes: see pulls_from;
///  8. optionally, `T::host<Parts, Handler, Consumer>` names the driver of many connections in both roles;
///  9. optionally, `T::pull_bytes<Parts>` (a static constexpr std::size_t): bytes of the endpoints of one pull and of
///     their buffers, if it has others than pull_with();
/// 10. optionally, if it shares memory, `T::open_view<Parts>(where, ref, options)`, which is the pipeline's view();
///     and, for the drivers over streams, `T::sharing_owner<Owner>` and `T::shared_transfer<Parts, Consumer>`: the
///     state machines of both ends, which derive from the protocol's own.
/// 11. optionally, `T::cuts_frames` (a static constexpr bool): true if control frames that do not fit one message
///     travel in pieces; requests without names do not.
/// The concept only names the drivers and does not instantiate them, so a program that only pulls compiles no owner.
template <class T, class Parts>
concept transport_for = detail::transport_in_pipeline_requirements<T, Parts>::met_6;

/// Requirement 7 for one pull: `where` is whatever the transport calls an address. It does not throw, gives a receipt
/// or an error, and borrows its arguments until it returns.
template <class T, class Parts, class Where, class Consumer>
concept pulls_from = requires(Where&& where, const reference& ref, Consumer& to, const pull_options& options,
                              typename Parts::chunking chunking) {
  {
    T::template pull<Parts>(std::forward<Where>(where), ref, to, options, chunking)
  } noexcept -> std::same_as<result<receipt>>;
};

namespace detail {
template <class...>
inline constexpr bool never = false;

/// Bytes of the buffer for bytes to be sent that are not in memory as they are: header text, packed elements, the
/// content of a file.
template <class Limits>
inline constexpr std::size_t slice_bytes = Limits::control_frame_bytes < 4096 ? 4 * Limits::control_frame_bytes
                                                                              : 64 * 1024;
}  // namespace detail

/// The session of a transport that has none. No object of it can be made.
template <class Transport>
struct no_session {
  no_session() = delete;
  /// Refused when it compiles.
  template <class... Arguments>
  static result<no_session> connect(Arguments&&...) noexcept {
    static_assert(
        detail::never<Arguments...>,
        "tensorpull: this transport has no session: owner and recipient are in one place. Use its downloader and download_tensors");
    return failure(errc::invalid_argument);
  }
  /// Refused when it compiles.
  template <class... Arguments>
  static result<no_session> over(Arguments&&...) noexcept {
    static_assert(
        detail::never<Arguments...>,
        "tensorpull: this transport has no session: owner and recipient are in one place. Use its downloader and download_tensors");
    return failure(errc::invalid_argument);
  }
};

/// The usual constants of a transport over a byte stream; a policy that derives from it hides those that differ.
struct reliable_transport {
  using is_transport_policy = void;
  static constexpr std::uint64_t max_payload_bytes = tensorpull::max_payload_bytes;
  static constexpr bool reliable = true;  ///< every stream is
  static constexpr bool ordered = true;  ///< every stream is
  static constexpr bool shares_memory = false;
  static constexpr bool encrypted = false;  ///< hide it in a policy whose stream encrypts
  static constexpr bool anyone_answers = false;  ///< the other end of a connection does
  static constexpr identity_kind identifies = identity_kind::none;  ///< hide it in a policy whose stream has peer()
};

}  // namespace tensorpull
