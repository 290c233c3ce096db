// The framing slot: how a frame becomes bytes. A framing decides the bytes of control frames. The prefix of a payload
// is the same for all framings (detail/payload_prefix.hpp), so that ends with different framings understand each other.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/framing/frame.hpp>

#include <concepts>
#include <cstddef>
#include <span>

namespace tensorpull {

/// A framing policy F:
///  1. `F::is_framing_policy` names a type (it marks the slot);
///  2. `F::decode_storage` is default constructible: memory for the lists of one decoded frame, on the caller's stack;
///     optionally, `F::short_storage` is one that takes less, and decode() takes either: the frame then lacks its names
///     and its references;
///  3. `F::encode(frame, out)` writes one control frame (any kind but chunk) to the 8-aligned `out` and gives its
///  length in bytes,
///     a multiple of 8; `does_not_fit` if `out` is too small; the same frame always gives the same bytes; no heap;
///  4. `F::decode(bytes, frame, storage)` reads one whole control frame from 8-aligned memory; whatever the bytes are,
///  it neither
///     throws nor reads outside them; views in the frame point into `bytes` or `storage`; no heap for valid frames;
///  5. optionally, `F::short_frame_bytes` (a static constexpr std::size_t) is the length of its longest frame that has
///  neither names nor references nor tensors
///     nor ranges nor a body: one message of a transport has to carry it, unless the transport cuts it (`cuts_frames`)
///     and it is no longer than that of Cap'n Proto's frames. Without it, it is that of Cap'n Proto's frames.
template <class F>
concept framing = requires(const frame& in, frame& out, std::span<std::byte> bytes, std::span<const std::byte> whole,
                           typename F::decode_storage& storage) {
  typename F::is_framing_policy;
  static_cast<void>(typename F::decode_storage());
  { F::encode(in, bytes) } -> std::same_as<result<std::size_t>>;
  { F::decode(whole, out, storage) } -> std::same_as<result<void>>;
};

namespace detail {
/// The number of the first requirement that F misses, or 0: `pipeline` has a sentence for each.
template <class F>
constexpr int missed_of_framing() noexcept {
  if constexpr (framing<F>) return 0;
  else if constexpr (!requires { typename F::is_framing_policy; }) return 1;
  else if constexpr (!requires { static_cast<void>(typename F::decode_storage()); }) return 2;
  else if constexpr (!requires(const frame& in, std::span<std::byte> out) {
                       { F::encode(in, out) } -> std::same_as<result<std::size_t>>;
                     })
    return 3;
  else return 4;
}
}  // namespace detail

}  // namespace tensorpull
