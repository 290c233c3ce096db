// Message to Cap'n Proto struct, field by field. Used by capnp_framing.hpp alone.
#pragma once

#include <tensorpull/protocol/messages.hpp>

#include <tensorpull/framing/protocol.capnp.h>

#include <cstring>

namespace tensorpull::detail {

template <class Group>
void write_ref(const message& m, Group&& to) {
  to.setRefHigh(m.ref.high);
  to.setRefLow(m.ref.low);
}
template <class Group>
void write_ref_version(const message& m, Group&& to) {
  write_ref(m, to);
  to.setVersion(m.version);
}
/// Text setters want a zero byte behind the text, which a view does not have.
inline void copy_text(std::string_view from, capnp::Text::Builder to) {
  if (!from.empty()) std::memcpy(to.begin(), from.data(), from.size());
}

/// One case a kind.
inline void write_frame(const message& m, wire::Frame::Builder f) {
  f.setId(m.id);
  switch (m.kind) {
    case message_kind::describe: write_ref(m, f.initDescribe()); break;
    case message_kind::pull: {
      auto g = f.initPull();
      write_ref_version(m, g);
      g.setOffset(m.offset);
      g.setFingerprint(m.fingerprint);
      g.setLength(m.length);
      g.setDigestWanted(m.flag);
      break;
    }
    case message_kind::end: {
      auto g = f.initEnd();
      write_ref_version(m, g);
      g.setImageBytes(m.image_bytes);
      g.setNonce(m.nonce);
      break;
    }
    case message_kind::confirm: {
      auto g = f.initConfirm();
      write_ref_version(m, g);
      g.setNonce(m.nonce);
      g.setDigest(m.digest);
      g.setVerified(m.flag);
      break;
    }
    case message_kind::confirmed: {
      auto g = f.initConfirmed();
      write_ref_version(m, g);
      g.setNonce(m.nonce);
      g.setStatus(static_cast<wire::Status>(m.status));
      break;
    }
    case message_kind::cancel: {
      auto g = f.initCancel();
      write_ref_version(m, g);
      g.setNonce(m.nonce);
      break;
    }
    case message_kind::refused: {
      auto g = f.initRefused();
      write_ref_version(m, g);
      g.setOffset(m.offset);
      g.setStatus(static_cast<wire::Status>(m.status));
      g.setDelayMs(m.delay_ms);
      break;
    }
    case message_kind::schema: {
      auto g = f.initSchema();
      write_ref_version(m, g);
      g.setFirst(m.offset);
      break;
    }
    case message_kind::description: {
      auto d = f.initDescription();
      write_ref_version(m, d);
      d.setFingerprint(m.fingerprint);
      d.setImageBytes(m.image_bytes);
      d.setDataStart(m.data_start);
      d.setNonce(m.nonce);
      d.setChunkCap(m.length);
      d.setTensors(static_cast<std::uint32_t>(m.tensors));
      d.setWindow(m.window);
      d.setVerifiable(m.flag);
      break;
    }
    case message_kind::schema_page: {
      auto p = f.initSchemaPage();
      write_ref_version(m, p);
      p.setFirst(m.offset);
      p.setTotal(m.tensors);
      auto list = p.initTensors(static_cast<unsigned>(m.rows.size()));
      for (unsigned i = 0; i < list.size(); ++i) {
        copy_text(m.rows[i].name, list[i].initName(static_cast<unsigned>(m.rows[i].name.size())));
        copy_text(m.rows[i].dtype, list[i].initDtype(static_cast<unsigned>(m.rows[i].dtype.size())));
        auto shape = list[i].initShape(static_cast<unsigned>(m.rows[i].shape.size()));
        for (unsigned k = 0; k < shape.size(); ++k) shape.set(k, m.rows[i].shape[k]);
      }
      break;
    }
    case message_kind::locate: {
      auto l = f.initLocate();
      write_ref_version(m, l);
      auto names = l.initNames(static_cast<unsigned>(m.names.size()));
      for (unsigned i = 0; i < names.size(); ++i) copy_text(m.names[i], names.init(i, static_cast<unsigned>(m.names[i].size())));
      break;
    }
    case message_kind::located: {
      auto l = f.initLocated();
      write_ref_version(m, l);
      l.setNonce(m.nonce);
      l.setDigest(m.digest);
      l.setFingerprint(m.fingerprint);
      auto ranges = l.initRanges(static_cast<unsigned>(m.ranges.size()));
      for (unsigned i = 0; i < ranges.size(); ++i) {
        ranges[i].setBegin(m.ranges[i].begin);
        ranges[i].setEnd(m.ranges[i].end);
      }
      break;
    }
    case message_kind::application: {
      auto a = f.initApplication();
      a.setKind(m.application);
      auto refs = a.initReferences(static_cast<unsigned>(m.references.size()));
      for (unsigned i = 0; i < refs.size(); ++i) {
        refs[i].setRefHigh(m.references[i].id.high);
        refs[i].setRefLow(m.references[i].id.low);
        refs[i].setVersion(m.references[i].version);
        refs[i].setFingerprint(m.references[i].fingerprint);
      }
      auto body = a.initBody(static_cast<unsigned>(m.body.size()));
      if (!m.body.empty()) std::memcpy(body.begin(), m.body.data(), m.body.size());
      break;
    }
    case message_kind::nothing:
    case message_kind::chunk: f.setNothing(); break;
  }
}

}  // namespace tensorpull::detail
