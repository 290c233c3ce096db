// The framing slot: how a frame becomes bytes. A framing decides the bytes of control frames. The prefix of a payload
// is the same for all framings (detail/payload_prefix.hpp), so that ends with different framings understand each other.
#pragma once

#include <tensorpull/core/requirements.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/framing/frame.hpp>

#include <concepts>
#include <cstddef>
#include <span>
#include <utility>

namespace tensorpull {

namespace detail {
/// The requirements of a framing; their meaning stands at the concept.
template <class F, bool Silent = true, class Instead = nothing_instead>
struct framing_requirements : Instead {
  static constexpr bool met_1 = requires { typename F::is_framing_policy; };

  static constexpr bool met_2 = met_1 && requires { static_cast<void>(typename F::decode_storage()); };
  static_assert(
      Silent || met_2 == met_1,
      "tensorpull: a framing has memory for one decoded frame's lists (requirement 2): struct decode_storage, default constructible");

  static constexpr bool met_3 = met_2 && requires(const frame& in, std::span<std::byte> out) {
    { F::encode(in, out) } -> std::same_as<result<std::size_t>>;
  };
  static_assert(
      Silent || met_3 == met_2,
      "tensorpull: a framing writes frames (requirement 3): static result<std::size_t> encode(const frame&, std::span<std::byte>)");

  static constexpr bool met_4 = met_3 && requires(std::span<const std::byte> whole, frame& out) {
    { F::decode(whole, out, std::declval<typename F::decode_storage&>()) } -> std::same_as<result<void>>;
  };
  static_assert(
      Silent || met_4 == met_3,
      "tensorpull: a framing reads frames (requirement 4): static result<void> decode(std::span<const std::byte>, frame&, decode_storage&)");
};
}  // namespace detail

/// A framing policy F:
///  1. `F::is_framing_policy` names a type (it marks the slot);
///  2. `F::decode_storage` is default constructible: memory for the lists of one decoded frame, on the caller's stack;
///     optionally, `F::short_storage` is one that takes less, and decode() takes either: the frame then lacks its names
///     and its references;
///  3. `F::encode(frame, out)` writes one control frame (any kind but chunk) to the 8-aligned `out` and gives its
///     length in bytes, a multiple of 8; `does_not_fit` if `out` is too small; the same frame always gives the same
///     bytes; no heap;
///  4. `F::decode(bytes, frame, storage)` reads one whole control frame from 8-aligned memory; whatever the bytes are,
///     it neither throws nor reads outside them; views in the frame point into `bytes` or `storage`; no heap for valid
///     frames; on `unexpected_frame` for a kind that it does not know, the frame has that kind and its id;
///  5. optionally, `F::short_frame_bytes` (a static constexpr std::size_t) is the length of its longest frame that has
///     neither names nor references nor tensors nor ranges nor a body: one message of a transport has to carry it,
///     unless the transport cuts it (`cuts_frames`) and it is no longer than that of Cap'n Proto's frames. Without it,
///     it is that of Cap'n Proto's frames.
template <class F>
concept framing = detail::framing_requirements<F>::met_4;

}  // namespace tensorpull
