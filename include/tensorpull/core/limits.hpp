// The caps that stand between a hostile peer and this process, each named after what it stops. Also a pipeline policy.
#pragma once

#include <tensorpull/std/chrono.hpp>

#include <cstddef>
#include <cstdint>

namespace tensorpull {

inline constexpr std::uint64_t operator""_KiB(unsigned long long n) { return n << 10; }
inline constexpr std::uint64_t operator""_MiB(unsigned long long n) { return n << 20; }
inline constexpr std::uint64_t operator""_GiB(unsigned long long n) { return n << 30; }

/// The default limits. To change one, derive and hide it: `struct small : default_limits { static constexpr ... };`
struct default_limits {
  /// Marks the slot.
  using is_limits_policy = void;
  /// A control frame longer than this is refused before a byte of its body is read: stops allocation by claim.
  static constexpr std::size_t control_frame_bytes = 4096;
  /// A page of a schema, and what a recipient without an owner's buffers can take: small, since devices hold it alongside their model.
  static constexpr std::size_t page_bytes = 1088;
  /// Segments of a control frame: stops segment tables of millions of entries.
  static constexpr std::size_t control_frame_segments = 16;
  /// Words that reading one control frame may visit: stops alias bombs, which claim far more data than they send.
  static constexpr std::size_t traversal_words = 2048;
  /// Pointers that reading one control frame may follow in depth: stops cycles and stack exhaustion.
  static constexpr int nesting_levels = 8;
  /// The body of a message.
  static constexpr std::size_t application_body_bytes = 64 * 1024;
  /// References that travel in one message.
  static constexpr std::size_t application_references = 8;
  /// Bytes of one chunk that an owner serves; longer requests are shortened.
  static constexpr std::uint64_t chunk_cap_bytes = 64ull << 20;
  /// References that one owner publishes at a time.
  static constexpr std::size_t references = 64;
  /// Recipients that an owner of many connections remembers at a time, each once for each reference that it pulls.
  static constexpr std::size_t recipients = 2048;
  /// Transfers that one connection may have open at an owner at a time: stops tables that grow with requests.
  static constexpr std::size_t transfers_per_connection = 4;
  /// Tensors of a model whose schema comes from the other side.
  static constexpr std::size_t tensors = 1'000'000;
  /// A tensor's name, in bytes.
  static constexpr std::size_t name_bytes = 1024;
  /// Requests that one connection may have in flight at an owner: stops queues that grow with requests.
  static constexpr std::size_t pipelined_requests = 8;
  /// Bytes that an owner hashes in a second for subsets that nobody has asked for before: stops requests that cost a pass over the model.
  static constexpr std::uint64_t subset_bytes_per_second = 1ull << 30;
  /// What `busy` tells a recipient to wait.
  static constexpr std::chrono::milliseconds busy_delay{100};
  /// Requests that a recipient keeps in flight at most.
  static constexpr std::size_t window = 1024;
};

namespace detail {
/// Used in a requirement: what it is called with has to be a constant and a number.
constexpr bool is_constant(std::uint64_t) noexcept { return true; }
}  // namespace detail

/// A limits policy L:
///  1. `L::is_limits_policy` names a type (it marks the slot);
///  2. `L` has each constant of default_limits under its name, at least 0. A policy that derives from default_limits has.
template <class L>
concept limits_policy = requires {
  typename L::is_limits_policy;
  requires detail::is_constant(L::control_frame_bytes) && detail::is_constant(L::page_bytes) && detail::is_constant(L::control_frame_segments);
  requires detail::is_constant(L::traversal_words) && detail::is_constant(L::nesting_levels) && detail::is_constant(L::application_body_bytes);
  requires detail::is_constant(L::application_references) && detail::is_constant(L::chunk_cap_bytes) && detail::is_constant(L::references);
  requires detail::is_constant(L::recipients) && detail::is_constant(L::transfers_per_connection) && detail::is_constant(L::tensors);
  requires detail::is_constant(L::name_bytes) && detail::is_constant(L::pipelined_requests) && detail::is_constant(L::subset_bytes_per_second);
  requires std::same_as<decltype(L::busy_delay), const std::chrono::milliseconds> && detail::is_constant(L::window);
};
static_assert(limits_policy<default_limits>);

namespace detail {
/// The number of the first requirement that L misses, or 0: `pipeline` has a sentence for each.
template <class L>
constexpr int missed_of_limits() noexcept {
  if constexpr (limits_policy<L>) return 0;
  else return requires { typename L::is_limits_policy; } ? 2 : 1;
}
}  // namespace detail

/// The largest payload that one Cap'n Proto Data can hold, rounded down to a word.
inline constexpr std::uint64_t max_payload_bytes = 536'870'904;

/// The chunk length that users of federated learning frameworks know.
inline constexpr std::uint64_t default_chunk_bytes = 2_MiB;

}  // namespace tensorpull
