// An answer on its way: a few words, from which its frame is written whenever it is sent.
#pragma once

#include <tensorpull/core/limits.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/framing/frame.hpp>
#include <tensorpull/protocol/owner/publication.hpp>
#include <tensorpull/protocol/subset.hpp>

namespace tensorpull {

/// An answer that waits to be sent: enough to write its frame again at any time, since a partly sent frame is produced anew.
struct pending_reply {
  message_kind kind = message_kind::nothing;
  tensorpull::status status = status::ok;
  std::uint32_t id = 0;
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  std::uint32_t length = 0;
  std::uint32_t record = 0;  ///< of the recipient that gets it
  ref_id ref{};
  std::uint64_t version = 0;
  std::uint64_t offset = 0;
  std::uint64_t nonce = 0;
  std::uint64_t digest = 0;
};

inline bool refuse(pending_reply& r, status why) noexcept {
  r.kind = message_kind::refused;
  r.status = why;
  return true;
}

/// The message behind a control answer about `p`, which is still published as it was when the answer was made; refusals and
/// confirmations need no publication. `rows` is memory for a schema page.
template <class Limits>
message expand_reply(const pending_reply& r, const publication* p, std::span<schema_row> rows) noexcept {
  message m;
  m.kind = r.kind;
  m.status = r.status;
  m.id = r.id;
  m.ref = r.ref;
  m.version = r.version;
  m.offset = r.offset;
  m.nonce = r.nonce;
  m.digest = r.digest;
  m.length = r.length;
  if (r.kind == message_kind::refused && r.status == status::busy) m.delay_ms = Limits::busy_delay_ms;
  if (r.kind == message_kind::refused || r.kind == message_kind::confirmed || r.kind == message_kind::chunk) return m;
  if (p == nullptr) {
    m.kind = message_kind::refused;
    m.status = status::withdrawn;
    return m;
  }
  const image_schema& schema = *p->image.schema;
  m.image_bytes = schema.image_bytes;
  m.tensors = schema.tensor_count;
  if (r.kind == message_kind::schema_page) {
    m.rows = schema_rows(schema, r.offset, rows, Limits::page_bytes);
  } else if (r.kind == message_kind::description) {
    m.fingerprint = schema.fingerprint;
    m.data_start = schema.header_bytes;
    m.length = static_cast<std::uint32_t>(std::min(Limits::chunk_cap_bytes, max_payload_bytes));
    m.window = static_cast<std::uint16_t>(std::min<std::size_t>(Limits::pipelined_requests, Limits::window));
    m.flag = p->verifiable;
  }
  return m;
}

}  // namespace tensorpull
