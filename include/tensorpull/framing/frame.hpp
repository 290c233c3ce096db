// Frames as plain values: what travels between two ends. A framing encodes and decodes them; the state machines take
// and give them.
#pragma once

#include <tensorpull/core/error.hpp>
#include <tensorpull/core/ids.hpp>
#include <tensorpull/framing/element_list.hpp>
#include <tensorpull/image/byte_runs.hpp>
#include <tensorpull/integrity/concept.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tensorpull {

/// The kinds of frames. The values are those of the wire (the union tags of framing/protocol.capnp, which describes
/// each kind).
enum class frame_kind : std::uint16_t {
  nothing,
  describe,
  pull,
  chunk,
  end,
  confirm,
  confirmed,
  cancel,
  refused,
  schema,
  description,
  schema_page,
  locate,
  located,
  application,
  piece,
  taken,
};

/// Why a request was refused, or how a confirmation was taken. The values are those of the wire
/// (framing/protocol.capnp).
enum class status : std::uint16_t {
  ok,
  unknown_reference,
  withdrawn,
  stale,
  out_of_range,
  busy,
  bad_request,
  unsupported,
  schema_mismatch,
  digest_mismatch,
  cancelled,
  already_final,
  unreadable,
  owner_lost,
  looked,
  ended,
};

/// The error that a recipient gets for the owner's status.
constexpr errc to_errc(status s) noexcept {
  switch (s) {
    case status::unknown_reference: return errc::unknown_reference;
    case status::withdrawn: return errc::withdrawn;
    case status::ended: return errc::ended;
    case status::unreadable: return errc::unreadable;
    case status::owner_lost: return errc::owner_lost;
    case status::stale: return errc::stale_version;
    case status::out_of_range: return errc::out_of_range;
    case status::busy: return errc::busy;
    case status::unsupported:
    case status::looked: return errc::unsupported_request;  // the latter is never a refusal
    case status::schema_mismatch: return errc::schema_mismatch;
    case status::digest_mismatch: return errc::digest_mismatch;
    case status::cancelled: return errc::cancelled_by_peer;
    case status::already_final: return errc::already_final;
    default: return errc::bad_request;
  }
}

/// How a cancellation names the error of a recipient that cannot take what is described, and may ask again with
/// another destination or limit: schema_mismatch or unsupported. ok: the error is none of these.
constexpr status declining(errc why) noexcept {
  switch (why) {
    case errc::schema_mismatch: return status::schema_mismatch;
    case errc::too_large:
    case errc::does_not_fit:
    case errc::out_of_memory:
    case errc::disk_full:
    case errc::unsupported_dtype:
    case errc::unsupported_layout:
    case errc::bad_request:   // a name that is not published
    case errc::out_of_range:  // or a slice
    case errc::not_verifiable: return status::unsupported;
    default: return status::ok;
  }
}
/// Whether a cancellation has such a status.
constexpr bool declines(status s) noexcept { return s == status::schema_mismatch || s == status::unsupported; }

/// The `length` of a pull that asks for all that is left of an image in one chunk without a digest. An owner whose cap
/// is usual_chunk_cap_bytes or more sends that, even if it is longer than the cap.
inline constexpr std::uint32_t all_in_one_chunk = 0xffffffff;

/// A byte range [begin, end) of an image.
struct byte_range {
  /// the first byte
  std::uint64_t begin = 0;
  /// one past its last byte
  std::uint64_t end = 0;
};

/// Indices [begin, end) of one of a tensor's dimensions; both 0: all of it.
struct index_range {
  /// the first index
  std::uint64_t begin = 0;
  /// one past the last
  std::uint64_t end = 0;
  /// which dimension; 0: the outermost
  std::uint16_t dimension = 0;

  /// Whether it is all of the tensor.
  constexpr bool all() const noexcept { return begin == 0 && end == 0; }
};

/// One tensor of a schema as it travels: text and numbers from the other side, not yet checked.
struct schema_row {
  /// the tensor's name
  std::string_view name;
  /// as a safetensors header has it, such as "F32"
  std::string_view dtype;
  /// elements in each dimension, outermost first
  element_list<std::uint64_t> shape{};
};

/// The content of one frame. Which members have a meaning depends on `kind`; their comments name the kinds (see
/// framing/protocol.capnp). The spans and views point into the frame's bytes or into decode storage: they are valid
/// during the call that receives the frame.
struct frame {
  /// what the frame is
  frame_kind kind = frame_kind::nothing;
  /// refused, cancel: why; confirmed: how the confirmation was taken
  tensorpull::status status = status::ok;
  /// chosen by the requester, repeated in the answer
  std::uint32_t id = 0;
  /// what the frame is about
  ref_id ref{};
  /// which version of it; 0 in a request: whatever is published now
  std::uint64_t version = 0;
  /// the owner's number for this serve; confirm and cancel repeat it
  std::uint64_t nonce = 0;
  /// pull, description, located: of the schema; 0: not stated. pull, chunk, with `flag`: byte_runs::word()
  std::uint64_t fingerprint = 0;
  /// chunk: of its payload; located: of the named tensors; confirm: of what was received
  std::uint64_t digest = 0;
  /// pull, chunk: bytes of the image; refused: of the request, or the index of a name; schema, schema_page: index of
  /// the first tensor
  std::uint64_t offset = 0;
  std::uint64_t image_bytes = 0;  ///< description, end
  std::uint64_t data_start = 0;  ///< description: length of the image's header in bytes
  std::uint64_t tensors = 0;  ///< description, schema_page: tensors in the whole schema
  /// pull: bytes asked for; chunk: bytes of payload; description: the owner's cap on a chunk
  std::uint32_t length = 0;
  /// refused with busy: how long to wait before asking again; with withdrawn: why, a number chosen by the application
  std::uint32_t delay_ms = 0;
  std::uint32_t application = 0;  ///< application: the message's kind, chosen by the application
  std::uint16_t window = 0;  ///< description: requests that may be in flight
  /// description: words of 8 bytes of the longest request that the owner takes; 0: not stated
  std::uint16_t request_words = 0;
  std::uint32_t reason = 0;  ///< cancel: why, a number chosen by the application
  recipient_id recipient{};  ///< describe, confirm, cancel: the recipient that asks; none: the connection stands for it
  digest_kind chunk_digest = digest_kind::none;  ///< pull: the digest that the chunk shall carry
  bool flag = false;  ///< confirm: verified; description: verifiable; pull, chunk: of runs of bytes
  /// describe: the recipient would rather read the image's memory itself; description: that memory comes with the frame
  bool memory = false;

  element_list<schema_row> rows{};  ///< schema_page: its tensors
  element_list<std::string_view> names{};  ///< locate: the tensors wanted
  element_list<index_range> slices{};  ///< locate: which part of each; empty: all of all
  element_list<byte_range> ranges{};  ///< located: where they are, in image order
  std::span<const reference> references{};  ///< application: the message's references
  std::span<const std::byte> body{};  ///< application: the message's body
};

/// The runs that a pull asks for, and of which a chunk's payload is.
constexpr byte_runs runs_of(const frame& m) noexcept {
  return m.flag ? byte_runs::of_word(m.fingerprint) : byte_runs{};
}

/// Bytes of the longest frame with a message, which a buffer for messages has to hold. A reference takes four words;
/// 256 bytes are enough for the segment table, the structs and the pointers.
template <class Limits>
inline constexpr std::size_t message_frame_bytes = Limits::application_body_bytes +
                                                   Limits::application_references * 32 + 256;
/// Bytes of a buffer for any frame without payload: whole cache lines.
template <class Limits>
inline constexpr std::size_t frame_buffer_bytes = (std::max(message_frame_bytes<Limits>,
                                                            std::size_t{Limits::control_frame_bytes}) +
                                                   63) /
                                                  64 * 64;

/// Whether a frame of this kind is for the other end's owner. Otherwise it is an answer, or a message of the
/// application.
constexpr bool is_request(frame_kind kind) noexcept {
  switch (kind) {
    case frame_kind::describe:
    case frame_kind::pull:
    case frame_kind::confirm:
    case frame_kind::cancel:
    case frame_kind::schema:
    case frame_kind::locate: return true;
    default: return false;
  }
}
/// Whether only newer versions of the protocol have this kind. An owner refuses such a request as `unsupported`.
constexpr bool is_newer(frame_kind kind) noexcept { return kind > frame_kind::taken; }

}  // namespace tensorpull
