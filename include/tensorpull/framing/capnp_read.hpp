// Cap'n Proto struct to message, field by field; every list is bounded by the storage. Used by capnp_framing.hpp alone.
#pragma once

#include <tensorpull/core/limits.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/protocol/messages.hpp>

#include <tensorpull/framing/protocol.capnp.h>

#include <array>
#include <new>

namespace tensorpull::detail {

/// Memory for the lists of one decoded control frame. Sizes follow from what fits such a frame.
template <class Limits>
struct list_storage {
  std::array<std::uint64_t, Limits::control_frame_bytes / 8> dims;
  union {
    std::array<schema_row, Limits::control_frame_bytes / 32> rows;
    std::array<std::string_view, Limits::control_frame_bytes / 16> names;
    std::array<byte_range, Limits::control_frame_bytes / 16> ranges;
    std::array<reference, Limits::application_references> references;
  };
  static constexpr std::size_t most_body_bytes = Limits::application_body_bytes;
  list_storage() noexcept {}  // uninitialised on purpose: it is some KiB on the stack of every decoding call
};

template <class Group>
void read_ref(const Group& from, message& m) {
  m.ref = {from.getRefHigh(), from.getRefLow()};
}
template <class Group>
void read_ref_version(const Group& from, message& m) {
  read_ref(from, m);
  m.version = from.getVersion();
}
inline std::string_view as_view(capnp::Text::Reader t) { return {t.begin(), t.size()}; }
inline status as_status(wire::Status s) {
  // an unknown status of a newer peer is still a refusal
  return static_cast<std::uint16_t>(s) <= static_cast<std::uint16_t>(status::already_final) ? static_cast<status>(s) : status::unsupported;
}

template <class Storage>
result<void> read_rows(wire::SchemaPage::Reader p, message& m, Storage& lists) {
  const auto tensors = p.getTensors();
  if (tensors.size() > lists.rows.size()) return failure(errc::too_large, tensors.size());
  std::size_t dims = 0;
  for (unsigned i = 0; i < tensors.size(); ++i) {
    const auto shape = tensors[i].getShape();
    if (shape.size() > lists.dims.size() - dims) return failure(errc::too_large, shape.size());
    for (unsigned k = 0; k < shape.size(); ++k) lists.dims[dims + k] = shape[k];
    ::new (static_cast<void*>(&lists.rows[i])) schema_row{as_view(tensors[i].getName()), as_view(tensors[i].getDtype()), {lists.dims.data() + dims, shape.size()}};
    dims += shape.size();
  }
  m.rows = {lists.rows.data(), tensors.size()};
  return {};
}

template <class Storage>
result<void> read_application(wire::Application::Reader a, message& m, Storage& lists) {
  m.application = a.getKind();
  const auto refs = a.getReferences();
  if (refs.size() > lists.references.size()) return failure(errc::too_large, refs.size());
  for (unsigned i = 0; i < refs.size(); ++i)
    ::new (static_cast<void*>(&lists.references[i])) reference{{refs[i].getRefHigh(), refs[i].getRefLow()}, refs[i].getVersion(), refs[i].getFingerprint()};
  m.references = {lists.references.data(), refs.size()};
  const auto body = a.getBody();
  if (body.size() > Storage::most_body_bytes) return failure(errc::too_large, body.size());
  m.body = {reinterpret_cast<const std::byte*>(body.begin()), body.size()};
  return {};
}

/// One case a kind. `m` is left with what was read so far on an error.
template <class Storage>
result<void> read_frame(wire::Frame::Reader f, message& m, Storage& lists) {
  m = {};
  m.id = f.getId();
  m.kind = static_cast<message_kind>(f.which());
  switch (m.kind) {
    case message_kind::nothing: return {};
    case message_kind::describe: read_ref(f.getDescribe(), m); return {};
    case message_kind::pull: {
      const auto g = f.getPull();
      read_ref_version(g, m);
      m.offset = g.getOffset();
      m.fingerprint = g.getFingerprint();
      m.length = g.getLength();
      m.flag = g.getDigestWanted();
      return {};
    }
    case message_kind::chunk: return failure(errc::unsupported_layout);
    case message_kind::end: {
      const auto g = f.getEnd();
      read_ref_version(g, m);
      m.image_bytes = g.getImageBytes();
      m.nonce = g.getNonce();
      return {};
    }
    case message_kind::confirm: {
      const auto g = f.getConfirm();
      read_ref_version(g, m);
      m.nonce = g.getNonce();
      m.digest = g.getDigest();
      m.flag = g.getVerified();
      return {};
    }
    case message_kind::confirmed: {
      const auto g = f.getConfirmed();
      read_ref_version(g, m);
      m.nonce = g.getNonce();
      m.status = as_status(g.getStatus());
      return {};
    }
    case message_kind::cancel: {
      const auto g = f.getCancel();
      read_ref_version(g, m);
      m.nonce = g.getNonce();
      return {};
    }
    case message_kind::refused: {
      const auto g = f.getRefused();
      read_ref_version(g, m);
      m.offset = g.getOffset();
      m.status = as_status(g.getStatus());
      m.delay_ms = g.getDelayMs();
      return {};
    }
    case message_kind::schema: {
      const auto g = f.getSchema();
      read_ref_version(g, m);
      m.offset = g.getFirst();
      return {};
    }
    case message_kind::description: {
      const auto d = f.getDescription();
      read_ref_version(d, m);
      m.fingerprint = d.getFingerprint();
      m.image_bytes = d.getImageBytes();
      m.data_start = d.getDataStart();
      m.nonce = d.getNonce();
      m.length = d.getChunkCap();
      m.tensors = d.getTensors();
      m.window = d.getWindow();
      m.flag = d.getVerifiable();
      return {};
    }
    case message_kind::schema_page: {
      const auto p = f.getSchemaPage();
      read_ref_version(p, m);
      m.offset = p.getFirst();
      m.tensors = p.getTotal();
      return read_rows(p, m, lists);
    }
    case message_kind::locate: {
      const auto l = f.getLocate();
      read_ref_version(l, m);
      const auto names = l.getNames();
      if (names.size() > lists.names.size()) return failure(errc::too_large, names.size());
      for (unsigned i = 0; i < names.size(); ++i) ::new (static_cast<void*>(&lists.names[i])) std::string_view(as_view(names[i]));
      m.names = {lists.names.data(), names.size()};
      return {};
    }
    case message_kind::located: {
      const auto l = f.getLocated();
      read_ref_version(l, m);
      m.nonce = l.getNonce();
      m.digest = l.getDigest();
      m.fingerprint = l.getFingerprint();
      const auto ranges = l.getRanges();
      if (ranges.size() > lists.ranges.size()) return failure(errc::too_large, ranges.size());
      for (unsigned i = 0; i < ranges.size(); ++i) ::new (static_cast<void*>(&lists.ranges[i])) byte_range{ranges[i].getBegin(), ranges[i].getEnd()};
      m.ranges = {lists.ranges.data(), ranges.size()};
      return {};
    }
    case message_kind::application: return read_application(f.getApplication(), m, lists);
  }
  return failure(errc::unexpected_message, static_cast<std::uint64_t>(m.kind));
}

}  // namespace tensorpull::detail
