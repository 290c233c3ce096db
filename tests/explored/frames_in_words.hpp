// Frames that travel between two ends, read as a host reads them, and told in words.
#pragma once

#include "support/words.hpp"

#include <tensorpull/framing/detail/payload_prefix.hpp>
#include <tensorpull/framing/detail/piece_prefix.hpp>
#include <tensorpull/framing/word_framing.hpp>

#include <cstdio>
#include <string>

namespace test {

/// A frame as a host reads it.
struct read_frame {
  tp::frame m;
  const_byte_span bytes, payload;
};
template <class See>
void each_frame(const_byte_span bytes, See see) {
  using prefix = tp::detail::payload_prefix;
  while (!bytes.empty()) {
    const auto measured = tp::detail::measure_frame(bytes, bytes.size(), 1);
    if (!measured || !*measured || **measured > bytes.size()) return;
    const auto one = bytes.first(**measured);
    bytes = bytes.subspan(one.size());
    read_frame f;
    f.bytes = one;
    if (one.size() < 24) continue;
    if (prefix::announces_payload(one)) {
      if (one.size() < prefix::bytes) continue;
      const auto m = prefix::read(one.first<prefix::bytes>());
      if (!m) continue;
      f.m = *m;
      f.payload = one.subspan(prefix::bytes, m->length);
    } else if (tp::detail::piece_prefix::announced(one)) {
      if (one.size() < prefix::bytes) continue;
      const auto p = tp::detail::piece_prefix::read(one.first<prefix::bytes>());
      if (!p) continue;
      f.m.kind = p->kind, f.m.id = p->number, f.m.offset = p->offset, f.m.length = p->length;
    } else {
      tp::word_framing::short_storage lists;
      if (!tp::word_framing::decode(one, f.m, lists)) continue;
    }
    see(f);
  }
}
inline read_frame first_frame(const_byte_span bytes) {
  read_frame first;
  each_frame(bytes, [&](const read_frame& f) {
    if (first.m.kind == tp::frame_kind::nothing) first = f;
  });
  return first;
}

/// What a datagram holds, in words.
inline std::string tell_datagram(const_byte_span d) {
  static constexpr const char* names[] = {
      "nothing", "describe",    "pull",        "chunk",  "end",     "confirm",     "confirmed", "cancel", "refused",
      "schema",  "description", "schema page", "locate", "located", "application", "piece",     "taken"};
  std::string text;
  each_frame(d, [&](const read_frame& f) {
    const tp::frame& m = f.m;
    const auto hex = [](std::uint64_t v) {
      char digits[20];
      std::snprintf(digits, sizeof digits, "%llx", static_cast<unsigned long long>(v));
      return std::string(digits);
    };
    text += text.empty() ? "" : " + ";
    text += names[static_cast<unsigned>(m.kind)];
    text += " " + hex(m.id);
    if (m.kind == tp::frame_kind::pull || m.kind == tp::frame_kind::chunk || m.kind == tp::frame_kind::piece ||
        m.kind == tp::frame_kind::taken)
      text += " [" + std::to_string(m.offset) + ", " + std::to_string(m.offset + m.length) + ")";
    if (m.kind == tp::frame_kind::refused || m.kind == tp::frame_kind::confirmed)
      text += " status " + std::to_string(static_cast<unsigned>(m.status));
    if (m.version != 0) text += " of version " + hex(m.version);
    if (m.nonce != 0) text += " nonce " + hex(m.nonce);
    if (m.recipient) text += " by " + hex(m.recipient.value);
  });
  return text.empty() ? std::to_string(d.size()) + " bytes that are no frame" : text;
}

}  // namespace test
