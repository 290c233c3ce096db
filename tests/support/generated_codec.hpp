// The codec of control frames as the accessors that `capnp` generates from the schema make it: what the library's own
// words are compared with.
#pragma once

#include <tensorpull/framing/protocol.capnp.h>
#include <tensorpull/framing/capnp/capnp_framing.hpp>

#include <capnp/message.h>

#include <cstring>
#include <limits>
#include <new>
#include <vector>

namespace generated {

using namespace tensorpull;

template <class Group>
void read_ref(const Group& from, frame& m) {
  m.ref = {from.getRefHigh(), from.getRefLow()};
}
template <class Group>
void read_ref_version(const Group& from, frame& m) {
  read_ref(from, m);
  m.version = from.getVersion();
}
inline std::string_view as_view(capnp::Text::Reader t) { return {t.begin(), t.size()}; }
inline status as_status(wire::Status s) {
  // an unknown status of a newer peer is still a refusal
  return static_cast<std::uint16_t>(s) <= static_cast<std::uint16_t>(status::ended) ? static_cast<status>(s)
                                                                                    : status::unsupported;
}

template <class Storage>
result<void> read_rows(wire::SchemaPage::Reader p, frame& m, Storage& lists) {
  const auto tensors = p.getTensors();
  if (tensors.size() > lists.rows.size()) return failure(errc::too_large, tensors.size());
  std::size_t dims = 0;
  for (unsigned i = 0; i < tensors.size(); ++i) {
    const auto shape = tensors[i].getShape();
    if (shape.size() > lists.dims.size() - dims) return failure(errc::too_large, shape.size());
    for (unsigned k = 0; k < shape.size(); ++k) lists.dims[dims + k] = shape[k];
    ::new (static_cast<void*>(&lists.rows[i]))
        schema_row{as_view(tensors[i].getName()), as_view(tensors[i].getDtype()),
                   std::span<const std::uint64_t>(lists.dims).subspan(dims, shape.size())};
    dims += shape.size();
  }
  m.rows = std::span<const schema_row>(lists.rows).first(tensors.size());
  return {};
}

template <class Storage>
result<void> read_application(wire::Application::Reader a, frame& m, Storage& lists) {
  m.application = a.getKind();
  const auto refs = a.getReferences();
  if (refs.size() > lists.references.size()) return failure(errc::too_large, refs.size());
  for (unsigned i = 0; i < refs.size(); ++i)
    ::new (static_cast<void*>(&lists.references[i]))
        reference{{refs[i].getRefHigh(), refs[i].getRefLow()}, refs[i].getVersion(), refs[i].getFingerprint()};
  m.references = {lists.references.data(), refs.size()};
  const auto body = a.getBody();
  if (body.size() > Storage::most_body_bytes) return failure(errc::too_large, body.size());
  m.body = {reinterpret_cast<const std::byte*>(body.begin()), body.size()};
  return {};
}

/// One case a kind. `m` is left with what was read so far on an error.
template <class Storage>
result<void> read_frame(wire::Frame::Reader f, frame& m, Storage& lists) {
  m = {};
  m.id = f.getId();
  m.kind = static_cast<frame_kind>(f.which());
  switch (m.kind) {
    case frame_kind::nothing: return {};
    case frame_kind::describe:
      read_ref(f.getDescribe(), m);
      m.recipient = {f.getDescribe().getRecipient()};
      m.memory = f.getDescribe().getMemory();
      return {};
    case frame_kind::pull: {
      const auto g = f.getPull();
      read_ref_version(g, m);
      m.offset = g.getOffset();
      m.fingerprint = g.getFingerprint();
      m.length = g.getLength();
      m.chunk_digest = static_cast<digest_kind>(g.getDigestKind());
      m.flag = g.getRuns();
      return {};
    }
    case frame_kind::chunk: return failure(errc::unsupported_layout);
    case frame_kind::end: {
      const auto g = f.getEnd();
      read_ref_version(g, m);
      m.image_bytes = g.getImageBytes();
      m.nonce = g.getNonce();
      return {};
    }
    case frame_kind::confirm: {
      const auto g = f.getConfirm();
      read_ref_version(g, m);
      m.nonce = g.getNonce();
      m.digest = g.getDigest();
      m.recipient = {g.getRecipient()};
      m.flag = g.getVerified();
      return {};
    }
    case frame_kind::confirmed: {
      const auto g = f.getConfirmed();
      read_ref_version(g, m);
      m.nonce = g.getNonce();
      m.status = as_status(g.getStatus());
      return {};
    }
    case frame_kind::cancel: {
      const auto g = f.getCancel();
      read_ref_version(g, m);
      m.nonce = g.getNonce();
      m.recipient = {g.getRecipient()};
      m.reason = g.getReason();
      m.status = as_status(g.getStatus());
      return {};
    }
    case frame_kind::refused: {
      const auto g = f.getRefused();
      read_ref_version(g, m);
      m.offset = g.getOffset();
      m.status = as_status(g.getStatus());
      m.delay_ms = g.getDelayMs();
      return {};
    }
    case frame_kind::schema: {
      const auto g = f.getSchema();
      read_ref_version(g, m);
      m.offset = g.getFirst();
      return {};
    }
    case frame_kind::description: {
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
      m.memory = d.getMemory();
      m.request_words = d.getRequestWords();
      return {};
    }
    case frame_kind::schema_page: {
      const auto p = f.getSchemaPage();
      read_ref_version(p, m);
      m.offset = p.getFirst();
      m.tensors = p.getTotal();
      return read_rows(p, m, lists);
    }
    case frame_kind::locate: {
      const auto l = f.getLocate();
      read_ref_version(l, m);
      const auto names = l.getNames();
      if (names.size() > lists.names.size()) return failure(errc::too_large, names.size());
      bool sliced = false;
      for (unsigned i = 0; i < names.size(); ++i) {
        ::new (static_cast<void*>(&lists.names[i])) std::string_view(as_view(names[i].getName()));
        const index_range slice{names[i].getBegin(), names[i].getEnd(), names[i].getDimension()};
        sliced = sliced || !slice.all();
        if (i < lists.slices.size()) ::new (static_cast<void*>(&lists.slices[i])) index_range(slice);
        else if (sliced) return failure(errc::too_large, names.size());
      }
      m.names = std::span<const std::string_view>(lists.names.data(), names.size());
      if (sliced) m.slices = std::span<const index_range>(lists.slices.data(), names.size());
      return {};
    }
    case frame_kind::located: {
      const auto l = f.getLocated();
      read_ref_version(l, m);
      m.nonce = l.getNonce();
      m.digest = l.getDigest();
      m.fingerprint = l.getFingerprint();
      const auto ranges = l.getRanges();
      if (ranges.size() > lists.ranges.size()) return failure(errc::too_large, ranges.size());
      for (unsigned i = 0; i < ranges.size(); ++i)
        ::new (static_cast<void*>(&lists.ranges[i])) byte_range{ranges[i].getBegin(), ranges[i].getEnd()};
      m.ranges = std::span<const byte_range>(lists.ranges).first(ranges.size());
      return {};
    }
    case frame_kind::application: return read_application(f.getApplication(), m, lists);
    case frame_kind::piece:  // these two are read where datagrams are (protocol/datagrams)
    case frame_kind::taken: break;
  }
  return failure(errc::unexpected_frame, static_cast<std::uint64_t>(m.kind));
}


template <class Group>
void write_ref(const frame& m, Group&& to) {
  to.setRefHigh(m.ref.high);
  to.setRefLow(m.ref.low);
}
template <class Group>
void write_ref_version(const frame& m, Group&& to) {
  write_ref(m, to);
  to.setVersion(m.version);
}
/// Text setters want a zero byte behind the text, which a view does not have.
inline void copy_text(std::string_view from, capnp::Text::Builder to) {
  if (!from.empty()) std::memcpy(to.begin(), from.data(), from.size());
}

/// One case a kind.
inline void write_frame(const frame& m, wire::Frame::Builder f) {
  f.setId(m.id);
  switch (m.kind) {
    case frame_kind::describe: {
      auto g = f.initDescribe();
      write_ref(m, g);
      g.setRecipient(m.recipient.value);
      g.setMemory(m.memory);
      break;
    }
    case frame_kind::pull: {
      auto g = f.initPull();
      write_ref_version(m, g);
      g.setOffset(m.offset);
      g.setFingerprint(m.fingerprint);
      g.setLength(m.length);
      g.setDigestKind(static_cast<std::uint8_t>(m.chunk_digest));
      g.setRuns(m.flag);
      break;
    }
    case frame_kind::end: {
      auto g = f.initEnd();
      write_ref_version(m, g);
      g.setImageBytes(m.image_bytes);
      g.setNonce(m.nonce);
      break;
    }
    case frame_kind::confirm: {
      auto g = f.initConfirm();
      write_ref_version(m, g);
      g.setNonce(m.nonce);
      g.setDigest(m.digest);
      g.setRecipient(m.recipient.value);
      g.setVerified(m.flag);
      break;
    }
    case frame_kind::confirmed: {
      auto g = f.initConfirmed();
      write_ref_version(m, g);
      g.setNonce(m.nonce);
      g.setStatus(static_cast<wire::Status>(m.status));
      break;
    }
    case frame_kind::cancel: {
      auto g = f.initCancel();
      write_ref_version(m, g);
      g.setNonce(m.nonce);
      g.setRecipient(m.recipient.value);
      g.setReason(m.reason);
      g.setStatus(static_cast<wire::Status>(m.status));
      break;
    }
    case frame_kind::refused: {
      auto g = f.initRefused();
      write_ref_version(m, g);
      g.setOffset(m.offset);
      g.setStatus(static_cast<wire::Status>(m.status));
      g.setDelayMs(m.delay_ms);
      break;
    }
    case frame_kind::schema: {
      auto g = f.initSchema();
      write_ref_version(m, g);
      g.setFirst(m.offset);
      break;
    }
    case frame_kind::description: {
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
      d.setMemory(m.memory);
      d.setRequestWords(m.request_words);
      break;
    }
    case frame_kind::schema_page: {
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
    case frame_kind::locate: {
      auto l = f.initLocate();
      write_ref_version(m, l);
      if (m.slices.empty()) {  // as earlier versions had the field
        auto names = capnp::toAny(l).getPointerSection()[0].initAs<capnp::List<capnp::Text>>(
            static_cast<unsigned>(m.names.size()));
        for (unsigned i = 0; i < names.size(); ++i)
          copy_text(m.names[i], names.init(i, static_cast<unsigned>(m.names[i].size())));
        break;
      }
      auto names = l.initNames(static_cast<unsigned>(m.names.size()));
      for (unsigned i = 0; i < names.size(); ++i) {
        if (i < m.slices.size()) {
          names[i].setBegin(m.slices[i].begin);
          names[i].setEnd(m.slices[i].end);
          names[i].setDimension(m.slices[i].dimension);
        }
        copy_text(m.names[i], names[i].initName(static_cast<unsigned>(m.names[i].size())));
      }
      break;
    }
    case frame_kind::located: {
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
    case frame_kind::piece:
    case frame_kind::taken: break;
    case frame_kind::application: {
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
    case frame_kind::nothing:
    case frame_kind::chunk: f.setNothing(); break;
  }
}

/// The frame that the generated builders make.
inline std::vector<std::uint64_t> encode(const frame& m) {
  std::vector<std::uint64_t> out(10'000);
  capnp::FlatMessageBuilder builder(kj::arrayPtr(reinterpret_cast<capnp::word*>(out.data() + 1), out.size() - 1));
  write_frame(m, builder.initRoot<wire::Frame>());
  out.resize(1 + builder.getSegmentsForOutput()[0].size());
  out[0] = std::uint64_t{out.size() - 1} << 32;
  return out;
}

/// What the generated readers find in a frame, with the same limits as the library.
inline result<void> decode(std::span<const std::byte> bytes, frame& m, capnp_framing::decode_storage& lists) {
  using limits = default_limits;
  const auto measured = detail::measure_frame(bytes, std::numeric_limits<std::size_t>::max(),
                                              limits::control_frame_segments);
  if (!measured || !*measured || **measured != bytes.size()) return failure(errc::bad_frame);
  std::vector<kj::ArrayPtr<const capnp::word>> segments;
  const auto* const table = reinterpret_cast<const std::uint32_t*>(bytes.data());
  const auto* at = reinterpret_cast<const capnp::word*>(bytes.data()) + (table[0] + 1) / 2 + 1;
  for (std::uint32_t i = 0; i <= table[0]; at += table[++i]) segments.push_back(kj::arrayPtr(at, table[i + 1]));
  result<void> read{};
  const bool ok = detail::quietly([&] {
    capnp::ReaderOptions options;
    options.traversalLimitInWords = limits::traversal_words + bytes.size() / 8;
    options.nestingLimit = limits::nesting_levels;
    capnp::SegmentArrayMessageReader reader(kj::arrayPtr(segments.data(), segments.size()), options);
    read = read_frame(reader.getRoot<wire::Frame>(), m, lists);
  });
  if (!ok) return failure(errc::bad_frame);
  return read;
}

}  // namespace generated
