// The chunking slot: where one chunk ends and the next begins. It decides lengths only; the recipient asks by offset
// and length, the owner serves any range, so every recipient of one reference may cut it in its own way.
#pragma once

#include <tensorpull/core/limits.hpp>
#include <tensorpull/image/schema.hpp>

#include <tensorpull/std/chrono.hpp>

#include <concepts>
#include <cstdint>

namespace tensorpull {

/// What a strategy may look at when it cuts.
struct chunk_context {
  /// of the whole image
  std::uint64_t image_bytes = 0;
  std::uint64_t data_start = 0;            ///< first byte behind the image's header
  const image_schema* schema = nullptr;    ///< the tensors' ranges; null if the recipient does not know them
};

/// How a transfer gets on, for a strategy that adapts.
struct chunk_progress {
  std::uint64_t asked = 0;              ///< where the next request begins
  std::uint64_t received = 0;  ///< where the chunk begins that is expected next: what lies between the two is on its
                               ///< way
  std::uint64_t landed = 0;  ///< bytes that have landed since the beginning
  std::chrono::nanoseconds time{};  ///< since the call before, or since the connection was there
};

/// A chunking strategy C:
///  1. `C::is_chunking_policy` names a type (it marks the slot);
///  2. `C::max_chunk_bytes` is a constant: no chunk is longer; 0 means the whole image in one chunk;
///  3. `C::needs_layout`: cutting needs the image's layout, so the first pull waits for the description;
///  4. `c.next(offset, context)` gives the length of the chunk that starts at `offset` < image_bytes: at least 1, at
///  most
///     max_chunk_bytes (unless that is 0), at most what is left. It is asked for a chunk when the request is sent and
///     again when the answer comes, and both must give the same. A transfer may be resumed at any offset, also where no
///     chunk began;
///  5. optionally, `c.measured(const chunk_progress&)`: drivers call it while bytes come, and lengths may change. What
///  next() gives for a chunk that is on its
///     way stays as it was;
///  6. optionally, `C::within<MaxPayload>` is the strategy that a pipeline takes in its place if a message of the
///  transport carries MaxPayload bytes.
template <class C>
concept chunking_strategy = requires(const C c, std::uint64_t offset, const chunk_context& context) {
  typename C::is_chunking_policy;
  requires std::same_as<decltype(C::max_chunk_bytes), const std::uint64_t>;
  requires std::same_as<decltype(C::needs_layout), const bool>;
  { c.next(offset, context) } noexcept -> std::same_as<std::uint64_t>;
};

namespace detail {
/// Whether a strategy is told how the transfer gets on.
template <class C>
concept adapts = requires(C c, const chunk_progress& p) { c.measured(p); };
}  // namespace detail

namespace detail {
/// The number of the first requirement that C misses, or 0: `pipeline` has a sentence for each.
template <class C>
constexpr int missed_of_chunking() noexcept {
  if constexpr (chunking_strategy<C>) return 0;
  else if constexpr (!requires { typename C::is_chunking_policy; }) return 1;
  else if constexpr (!requires { requires std::same_as<decltype(C::max_chunk_bytes), const std::uint64_t>; }) return 2;
  else if constexpr (!requires { requires std::same_as<decltype(C::needs_layout), const bool>; }) return 3;
  else return 4;
}
}  // namespace detail

}  // namespace tensorpull
