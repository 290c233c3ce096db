// What the two ends say to each other, as plain values: what a framing encodes and decodes, what the state machines take and give.
#pragma once

#include <tensorpull/core/error.hpp>
#include <tensorpull/core/ids.hpp>
#include <tensorpull/integrity/concept.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tensorpull {

/// The order is the wire's (the union tags of framing/protocol.capnp).
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
};

/// Why a request was refused, or how a confirmation was taken. The order is the wire's.
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
};

/// The error that a recipient gets for the owner's status.
constexpr errc to_errc(status s) noexcept {
  switch (s) {
    case status::unknown_reference: return errc::unknown_reference;
    case status::withdrawn: return errc::withdrawn;
    case status::stale: return errc::stale_version;
    case status::out_of_range: return errc::out_of_range;
    case status::busy: return errc::busy;
    case status::unsupported: return errc::unsupported_request;
    case status::schema_mismatch: return errc::schema_mismatch;
    case status::digest_mismatch: return errc::digest_mismatch;
    case status::cancelled: return errc::cancelled_by_peer;
    case status::already_final: return errc::already_final;
    default: return errc::bad_request;
  }
}

/// A byte range [begin, end) of an image.
struct byte_range {
  /// the first byte
  std::uint64_t begin = 0;
  /// the first byte behind it
  std::uint64_t end = 0;
};

/// One tensor of a schema as it travels: text and numbers of the other side, not yet believed.
struct schema_row {
  /// the tensor's name
  std::string_view name;
  /// as a safetensors header has it, such as "F32"
  std::string_view dtype;
  /// elements in each dimension, outermost first
  std::span<const std::uint64_t> shape;
};

/// One frame's content. Which members mean something depends on `kind`; see framing/protocol.capnp.
/// The spans and views point into the frame or into decode storage: they are valid during the call that receives the message.
struct frame {
  /// what it says; the kinds that use a member are named beside it
  frame_kind kind = frame_kind::nothing;
  /// refused, confirmed: why, or how it was taken
  tensorpull::status status = status::ok;
  /// chosen by the requester; the answer repeats it
  std::uint32_t id = 0;
  /// what the frame is about
  ref_id ref{};
  /// which version of it; 0 in a request: whatever is published now
  std::uint64_t version = 0;
  /// the owner's number for this transfer; the confirmation repeats it
  std::uint64_t nonce = 0;
  /// of the schema; 0: not stated
  std::uint64_t fingerprint = 0;
  /// of the image or of the chunk
  std::uint64_t digest = 0;
  std::uint64_t offset = 0;        ///< pull, chunk, refused: bytes of the image; schema and schema_page: index of the first tensor
  std::uint64_t image_bytes = 0;   ///< description, end
  std::uint64_t data_start = 0;    ///< description: length of the image's header in bytes
  std::uint64_t tensors = 0;       ///< description, schema_page: tensors in the whole schema
  std::uint32_t length = 0;        ///< pull: bytes asked for; chunk: bytes of payload; description: the owner's cap on a chunk
  std::uint32_t delay_ms = 0;      ///< refused with busy: when to ask again
  std::uint32_t application = 0;   ///< application: the kind, the application's own
  std::uint16_t window = 0;        ///< description: requests that may be in flight
  std::uint32_t reason = 0;        ///< cancel: why, the recipient's own number
  recipient_id recipient{};        ///< describe, confirm, cancel: who asks; none: nobody but this connection
  digest_kind chunk_digest = digest_kind::none;  ///< pull: what the chunk shall carry
  bool flag = false;               ///< confirm: verified; description: verifiable

  std::span<const schema_row> rows{};          ///< schema_page
  std::span<const std::string_view> names{};   ///< locate
  std::span<const byte_range> ranges{};        ///< located
  std::span<const reference> references{};     ///< application
  std::span<const std::byte> body{};           ///< application
};

/// The longest frame of an application message, in bytes: what a buffer for messages has to hold. A reference takes four words, the lists and
/// the segment table the rest.
template <class Limits>
inline constexpr std::size_t message_frame_bytes = Limits::application_body_bytes + Limits::application_references * 32 + 256;

/// Whether this frame asks the owner's side for something (otherwise it answers the recipient's side, or is the application's).
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

}  // namespace tensorpull
