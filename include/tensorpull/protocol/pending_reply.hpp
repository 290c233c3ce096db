// An answer that waits to be sent: a few words, from which its frame is written when it is sent.
#pragma once

#include <tensorpull/framing/frame.hpp>

namespace tensorpull {

/// An answer that waits to be sent. It has what is needed to write its frame at any time, since the rest of a partly
/// sent frame is produced anew.
struct pending_reply {
  frame_kind kind = frame_kind::nothing;         ///< of the answer
  tensorpull::status status = status::ok;        ///< refused: why; confirmed: how the confirmation was taken
  std::uint32_t id = 0;                          ///< the request's
  std::uint32_t slot = 0;                        ///< index of the publication at its owner
  std::uint32_t generation = 0;                  ///< of the publication when the request was answered
  std::uint32_t length = 0;  ///< chunk: bytes of payload; refused with withdrawn: the owner's reason
  std::uint32_t record = 0;  ///< index of the recipient's record at its owner
  ref_id ref{};  ///< as in frame
  std::uint64_t version = 0;  ///< as in frame
  std::uint64_t offset = 0;  ///< as in frame
  std::uint64_t nonce = 0;  ///< as in frame
  std::uint64_t digest = 0;  ///< as in frame; of runs, which have none, byte_runs::word()
  /// chunk: a digest of this kind is still to be computed; it makes any other reply wait for owner_role::digest, too
  digest_kind chunk_digest = digest_kind::none;
  bool memory = false;  ///< as in frame
  bool runs = false;  ///< chunk: of runs of bytes
};

/// The frame as far as the reply itself has it; a description and a schema page take the rest from their publication.
/// `Slices`: limits::slices.
template <bool Slices = true>
constexpr frame frame_of(const pending_reply& r) noexcept {
  frame m;
  m.kind = r.kind;
  m.status = r.status;
  m.id = r.id;
  m.ref = r.ref;
  m.version = r.version;
  m.offset = r.offset;
  m.nonce = r.nonce;
  m.digest = r.digest;
  if (Slices && r.runs) {
    m.fingerprint = r.digest;
    m.digest = 0;
    m.flag = true;
  }
  m.memory = r.memory;
  (r.kind == frame_kind::refused && r.status == status::withdrawn ? m.delay_ms : m.length) = r.length;
  return m;
}

/// The reply that refuses a request as the frame `refusal` does.
constexpr pending_reply refusal_of(const frame& request, const frame& refusal) noexcept {
  pending_reply r;
  r.kind = frame_kind::refused;
  r.status = refusal.status;
  r.id = request.id;
  r.length = refusal.delay_ms;
  r.ref = request.ref;
  r.version = refusal.version;
  r.offset = refusal.offset;
  return r;
}

/// Turns a reply into a refusal; true, so that a function can answer `return refuse(...)`.
inline bool refuse(pending_reply& r, status why) noexcept {
  r.kind = frame_kind::refused;
  r.status = why;
  return true;
}

}  // namespace tensorpull
