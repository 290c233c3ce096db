// The chunking slot: where one chunk ends and the next begins. It decides lengths only; the recipient asks by offset
// and length, the owner serves any range, so every recipient of one reference may cut it in its own way.
#pragma once

#include <tensorpull/core/limits.hpp>
#include <tensorpull/core/requirements.hpp>
#include <tensorpull/image/schema.hpp>

#include <tensorpull/std/chrono.hpp>

#include <concepts>
#include <cstdint>

namespace tensorpull {

/// A strategy may look at this when it cuts. Of named tensors, a strategy that `needs_layout` sees their bytes alone,
/// one tensor behind the other without a header.
struct chunk_context {
  /// of the whole image; 2^64 - 1 if the first chunk is asked for ahead of the image's description, of which nothing
  /// is known then (requirement 3)
  std::uint64_t image_bytes = 0;
  std::uint64_t data_start = 0;            ///< first byte behind the image's header
  const image_schema* schema = nullptr;    ///< the tensors' ranges; null if the recipient does not know them
};

/// How a transfer gets on, for a strategy that adapts.
struct chunk_progress {
  std::uint64_t asked = 0;  ///< where the next request begins
  /// where the chunk that is expected next begins: what lies between the two is on its way
  std::uint64_t received = 0;
  std::uint64_t landed = 0;  ///< bytes that have landed since the beginning
  std::chrono::nanoseconds time{};  ///< since the call before, or since the connection was there
};

namespace detail {
/// The requirements of a chunking strategy; their meaning stands at the concept.
template <class C, bool Silent = true, class Instead = nothing_instead>
struct chunking_requirements : Instead {
  static constexpr bool met_1 = requires { typename C::is_chunking_policy; };

  static constexpr bool met_2 = met_1 &&
                                requires { requires std::same_as<decltype(C::max_chunk_bytes), const std::uint64_t>; };
  static_assert(
      Silent || met_2 == met_1,
      "tensorpull: a chunking policy has a longest chunk (requirement 2): static constexpr std::uint64_t max_chunk_bytes; 0: the whole image");

  static constexpr bool met_3 = met_2 && requires { requires std::same_as<decltype(C::needs_layout), const bool>; };
  static_assert(
      Silent || met_3 == met_2,
      "tensorpull: a chunking policy says whether it needs the image's layout (requirement 3): static constexpr bool needs_layout");

  static constexpr bool met_4 = met_3 && requires(const C c, std::uint64_t offset, const chunk_context& context) {
    { c.next(offset, context) } noexcept -> std::same_as<std::uint64_t>;
  };
  static_assert(
      Silent || met_4 == met_3,
      "tensorpull: a chunking policy gives each chunk's length (requirement 4): std::uint64_t next(std::uint64_t offset, const chunk_context&) const noexcept");
};
}  // namespace detail

/// A chunking strategy C:
///  1. `C::is_chunking_policy` names a type (it marks the slot);
///  2. `C::max_chunk_bytes` is a constant: no chunk is longer; 0 means the whole image in one chunk;
///  3. `C::needs_layout`: cutting needs the image's layout, so the first pull waits for the description. If not, the
///     first chunk is cut with a context in which nothing is known;
///  4. `c.next(offset, context)` gives the length of the chunk that starts at `offset` < image_bytes: at least 1, at
///     most max_chunk_bytes (unless that is 0), at most what is left. It is asked for a chunk when the request is sent
///     and again when the answer arrives, and both must give the same. A transfer may be resumed at any offset, also
///     where no chunk began;
///  5. optionally, `c.measured(const chunk_progress&)`: drivers call it while bytes arrive, and lengths may change. The
///     length that next() gives for a chunk that is on its way stays as it was;
///  6. optionally, `C::within<MaxPayload>` is the strategy that a pipeline takes instead if a message of the transport
///     carries MaxPayload bytes.
template <class C>
concept chunking_strategy = detail::chunking_requirements<C>::met_4;

namespace detail {
/// Whether a strategy is told how the transfer gets on.
template <class C>
concept adapts = requires(C c, const chunk_progress& p) { c.measured(p); };
}  // namespace detail

}  // namespace tensorpull
