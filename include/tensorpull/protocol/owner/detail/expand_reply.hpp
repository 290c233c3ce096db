// Writes out an answer that was kept as a few words.
#pragma once

#include <tensorpull/core/limits.hpp>
#include <tensorpull/protocol/owner/publication.hpp>
#include <tensorpull/protocol/pending_reply.hpp>
#include <tensorpull/protocol/subset.hpp>
#include <tensorpull/std/algorithm.hpp>

namespace tensorpull {

/// The message behind a control answer about `p`, which is still published as it was when the answer was made; refusals and
/// confirmations need no publication. `rows` is memory for a schema page.
template <class Limits>
frame expand_reply(const pending_reply& r, const publication* p, std::span<schema_row> rows) noexcept {
  frame m;
  m.kind = r.kind;
  m.status = r.status;
  m.id = r.id;
  m.ref = r.ref;
  m.version = r.version;
  m.offset = r.offset;
  m.nonce = r.nonce;
  m.digest = r.digest;
  m.length = r.length;
  if (r.kind == frame_kind::refused && r.status == status::busy) m.delay_ms = Limits::busy_delay_ms;
  if (r.kind == frame_kind::refused || r.kind == frame_kind::confirmed || r.kind == frame_kind::chunk) return m;
  if (p == nullptr) {
    m.kind = frame_kind::refused;
    m.status = status::withdrawn;
    return m;
  }
  const image_schema& schema = *p->image.schema;
  m.image_bytes = schema.image_bytes;
  m.tensors = schema.tensor_count;
  if (r.kind == frame_kind::schema_page) {
    m.rows = schema_rows(schema, r.offset, rows, Limits::page_bytes);
  } else if (r.kind == frame_kind::description) {
    m.fingerprint = schema.fingerprint;
    m.data_start = schema.header_bytes;
    m.length = static_cast<std::uint32_t>(std::min(Limits::chunk_cap_bytes, max_payload_bytes));
    m.window = static_cast<std::uint16_t>(std::min<std::size_t>(Limits::pipelined_requests, Limits::window));
    m.flag = p->verifiable;
  }
  return m;
}

}  // namespace tensorpull
