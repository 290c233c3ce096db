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

/// The largest payload that one Cap'n Proto Data can hold, rounded down to a word.
inline constexpr std::uint64_t max_payload_bytes = 536'870'904;

/// The chunk length that users of federated learning frameworks know.
inline constexpr std::uint64_t default_chunk_bytes = 2_MiB;

}  // namespace tensorpull
