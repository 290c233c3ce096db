// The limits on what a peer can make this process do. They are also a policy of the pipeline.
#pragma once

#include <tensorpull/core/requirements.hpp>
#include <tensorpull/std/chrono.hpp>

#include <cstddef>
#include <cstdint>

namespace tensorpull {

/// Sizes in bytes: 64_KiB, 2_MiB, 1_GiB, for a program that has `using namespace tensorpull::literals`.
inline namespace literals {
inline constexpr std::uint64_t operator""_KiB(unsigned long long n) { return n << 10; }
inline constexpr std::uint64_t operator""_MiB(unsigned long long n) { return n << 20; }
inline constexpr std::uint64_t operator""_GiB(unsigned long long n) { return n << 30; }
}  // namespace literals

/// The cap of owners that set none (default_limits::chunk_cap_bytes).
inline constexpr std::uint64_t usual_chunk_cap_bytes = 64_MiB;

/// The default limits. To change some, derive and hide them: `struct small : default_limits { static constexpr ... };`
struct default_limits {
  /// Marks the type as a policy for the limits slot.
  using is_limits_policy = void;
  /// Bytes of a control frame. A longer one is refused before its body is read: a claimed length must not cause an
  /// allocation. A request for a tensor by name is 128 bytes and its name long, so neither end may have fewer than that
  /// for the names that are asked for.
  static constexpr std::size_t control_frame_bytes = 4096;
  /// Bytes of a frame with a page of a schema, and of the buffer that a recipient has for it: small, since devices hold
  /// it besides their model. At least a word; below 152 no tensors can be asked for by name.
  static constexpr std::size_t page_bytes = 1088;
  /// Segments of a control frame: without a limit a segment table may claim 2^32 entries.
  static constexpr std::size_t control_frame_segments = 16;
  /// Words that reading one control frame may visit, besides its own length. Pointers to the same object many times
  /// would otherwise cost far more work than they cost to send.
  static constexpr std::size_t traversal_words = 2048;
  /// Nesting depth of pointers in one control frame: stops cycles. A page of a schema has 5.
  static constexpr int nesting_levels = 8;
  /// Bytes of a message's body.
  static constexpr std::size_t application_body_bytes = 64 * 1024;
  /// References that travel in one message.
  static constexpr std::size_t application_references = 8;
  /// Messages of the greatest length that a session keeps until they are received; of shorter ones it keeps more.
  /// Without a limit a peer could fill the memory of a program that is busy with something else.
  static constexpr std::size_t unread_messages = 1;
  /// Bytes of payload of one chunk that an owner serves; a longer request is shortened. The cap bounds what has to be
  /// hashed before a chunk with a digest leaves. One without costs the owner nothing, so an owner that keeps this cap,
  /// or has a higher one, sends a whole image in one chunk of any length.
  static constexpr std::uint64_t chunk_cap_bytes = usual_chunk_cap_bytes;
  /// References that one owner publishes at a time.
  static constexpr std::size_t references = 64;
  /// The same of a session, which has one recipient; at most `references`.
  static constexpr std::size_t session_references = 12;
  /// Recipients that an owner of many connections remembers at a time, each once for each reference that it pulls.
  static constexpr std::size_t recipients = 2048;
  /// Transfers that one connection may have open at an owner at a time, so that no table grows with requests.
  static constexpr std::size_t transfers_per_connection = 4;
  /// Tensors of a model whose schema comes from the other side.
  static constexpr std::size_t tensors = 1'000'000;
  /// Requests that one connection may have in flight at an owner, so that no queue grows with requests, and that a
  /// recipient over a stream has in flight by default: the lesser number counts. Each takes 80 bytes of the owner's
  /// connection, which of a loopback are on the stack. Longer chunks fill a longer path at no cost.
  static constexpr std::size_t pipelined_requests = 8;
  /// Bytes that an owner hashes in a second for subsets that nobody has asked for before: a short request can cost a
  /// pass over the model. 0: requests for subsets are refused as `unsupported`.
  static constexpr std::uint64_t subset_bytes_per_second = 256ull << 20;
  /// Whether a recipient may ask for slices of tensors (pull_request::slices). Otherwise that is invalid_argument, and
  /// the program has no code for it, nor for owners that take fewer names in a request than it sends.
  static constexpr bool slices = true;
  /// Bytes that an owner hashes in a second for digests with chunks, for recipients that have not taken half as many
  /// bytes: a peer that asks and hangs up must not keep it busy. Recipients that take what they ask for are not
  /// limited. 0: chunks with digests are refused as `unsupported`, and take no memory.
  static constexpr std::uint64_t chunk_digest_bytes_per_second = 256ull << 20;
  /// Chunks whose digests an owner computes at a time, half of them for recipients that have not taken half as many
  /// bytes; four times as many if several threads use it. Each takes about 640 bytes of the owner with xxHash. It
  /// remembers eight times this number of chunks' digests, and as many of subsets.
  static constexpr std::size_t digest_jobs = 2;
  /// How long an owner's `busy` tells a recipient to wait.
  static constexpr std::chrono::milliseconds busy_delay{100};
  /// Requests that a recipient keeps in flight at most. Over datagrams it remembers each in 8 bytes, and the longest
  /// path that it can fill holds so many chunks.
  static constexpr std::size_t window = 4096;
};

namespace detail {
/// Used in a requirement, with an argument in braces: the argument has to be a constant and a whole number that is not
/// negative.
constexpr bool is_number(std::uint64_t) noexcept { return true; }
/// The same for a number that is not 0 either.
constexpr bool is_bound(std::uint64_t n) noexcept { return n > 0; }

/// Bytes of a description, without which no transfer begins (framing/detail/control_words.hpp has the same number), and
/// of the answer that tells where one named tensor is.
inline constexpr std::size_t description_frame_bytes = 152, least_control_frame_bytes = 160;
/// The length of a name is hashed as 16 bits.
inline constexpr std::size_t most_control_frame_bytes = 64 * 1024;
/// Bytes of the longest frame that an owner makes in its slice: a description, or a page of a schema. Pages are not
/// longer than this, whatever a recipient would take, since the shortest slice of an owner has 8 KiB.
template <class Limits>
inline constexpr std::size_t made_frame_bytes = [] {
  std::size_t page = Limits::page_bytes < Limits::control_frame_bytes ? Limits::page_bytes
                                                                      : Limits::control_frame_bytes;
  if (page > 4096) page = 4096;
  return page < description_frame_bytes ? description_frame_bytes : page;
}();

/// Words of 8 bytes of the longest request that an end takes, as it states them; 0: not stated, since it takes what a
/// recipient of the default limits sends.
template <class Limits>
inline constexpr std::uint16_t request_words = Limits::control_frame_bytes < default_limits::control_frame_bytes
                                                   ? Limits::control_frame_bytes / 8
                                                   : 0;

/// The requirements of a limits policy; their meaning stands at the concept.
template <class L, bool Silent = true, class Instead = nothing_instead>
struct limits_requirements : Instead {
  static constexpr bool met_1 = requires { typename L::is_limits_policy; };

  static constexpr bool met_2 = met_1 && requires {
    requires is_bound({L::control_frame_bytes}) && is_bound({L::page_bytes}) && is_bound({L::control_frame_segments});
    requires is_bound({L::traversal_words}) && is_bound({L::nesting_levels}) && is_number({L::application_body_bytes});
    requires is_number({L::application_references}) && is_bound({L::unread_messages}) &&
                 is_bound({L::session_references});
    requires is_bound({L::chunk_cap_bytes}) && is_bound({L::references});
    requires is_bound({L::recipients}) && is_bound({L::transfers_per_connection}) && is_bound({L::tensors});
    requires is_bound({L::pipelined_requests}) && is_number({L::subset_bytes_per_second});
    requires is_number({L::chunk_digest_bytes_per_second}) && is_bound({L::digest_jobs});
    requires std::same_as<decltype(L::busy_delay), const std::chrono::milliseconds> && L::busy_delay.count() >= 0 &&
                 is_bound({L::window});
  };
  static_assert(
      Silent || met_2 == met_1,
      "tensorpull: a limits policy has each constant of default_limits (requirement 2): derive from default_limits, and hide those that you change; "
      "they are whole numbers above 0, except that application_body_bytes, application_references, subset_bytes_per_second, chunk_digest_bytes_per_second and busy_delay may be 0");

  static constexpr bool met_3 = met_2 && requires {
    requires L::control_frame_bytes >= least_control_frame_bytes&& L::control_frame_bytes <= most_control_frame_bytes;
    requires L::page_bytes >= 8;  // a buffer that is free holds where the next one is
    requires L::nesting_levels >= 5;
  };
  static_assert(
      Silent || met_3 == met_2,
      "tensorpull: a control frame of a limits policy holds an answer about one named tensor and is no longer than 64 KiB (requirement 3): control_frame_bytes is 160 to 65536, page_bytes at least 8, and nesting_levels at least 5");
};
}  // namespace detail

/// A limits policy L:
///  1. `L::is_limits_policy` names a type (it marks the slot);
///  2. `L` has each constant of default_limits under the same name. A policy that derives from default_limits has them
///     all. They are whole numbers above 0, except that application_body_bytes, application_references,
///     subset_bytes_per_second, chunk_digest_bytes_per_second and busy_delay may be 0;
///  3. `L::control_frame_bytes` is 160 (the answer about one named tensor) to 65,536, `L::page_bytes` at least 8, and
///     `L::nesting_levels` at least 5.
template <class L>
concept limits_policy = detail::limits_requirements<L>::met_3;
static_assert(limits_policy<default_limits>);

/// Bytes of the largest payload: what one Cap'n Proto Data can hold, 2^29 - 1, rounded down to a word.
inline constexpr std::uint64_t max_payload_bytes = 536'870'904;

/// The usual chunk length, in bytes.
inline constexpr std::uint64_t default_chunk_bytes = 2_MiB;

}  // namespace tensorpull
