// What the framing for small machines says of a frame, compared with the other framings: it accepts exactly the frames
// that our encoders write, and reads them to the same values.
#pragma once

#include <tensorpull/framing/layout_framing.hpp>
#include <tensorpull/framing/word_framing.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

namespace test {

/// Whether two frames say the same in each of their members.
inline bool same_values(const tensorpull::frame& a, const tensorpull::frame& b) {
  const auto words = [](const tensorpull::frame& m) {
    return std::tuple(m.kind, m.status, m.id, m.ref.high, m.ref.low, m.version, m.nonce, m.fingerprint, m.digest,
                      m.offset, m.image_bytes, m.data_start, m.tensors, m.length);
  };
  const auto others = [](const tensorpull::frame& m) {
    return std::tuple(m.delay_ms, m.application, m.window, m.reason, m.recipient.value, m.chunk_digest, m.flag,
                      m.memory);
  };
  const auto rows = [](const tensorpull::schema_row& x, const tensorpull::schema_row& y) {
    return x.name == y.name && x.dtype == y.dtype &&
           std::equal(x.shape.begin(), x.shape.end(), y.shape.begin(), y.shape.end());
  };
  const auto ranges = [](const tensorpull::byte_range& x, const tensorpull::byte_range& y) {
    return x.begin == y.begin && x.end == y.end;
  };
  return words(a) == words(b) && others(a) == others(b) &&
         std::equal(a.rows.begin(), a.rows.end(), b.rows.begin(), b.rows.end(), rows) &&
         std::ranges::equal(a.names, b.names) &&
         std::equal(a.ranges.begin(), a.ranges.end(), b.ranges.begin(), b.ranges.end(), ranges) &&
         std::ranges::equal(a.references, b.references) && std::ranges::equal(a.body, b.body);
}

/// Whether a frame that reads as `m` has the bytes that our encoders write for it. A status that no version knows reads
/// as another one, so its two bytes are taken from the frame.
inline bool is_as_written(std::span<const std::byte> bytes, const tensorpull::frame& m) {
  std::vector<std::uint64_t> room(bytes.size() / 8 + 1);
  const auto out = std::as_writable_bytes(std::span(room));
  const auto n = tensorpull::word_framing::encode(m, out);
  if (!n || *n != bytes.size()) return false;
  const std::size_t status = m.kind == tensorpull::frame_kind::cancel ? 68
                             : m.kind == tensorpull::frame_kind::confirmed || m.kind == tensorpull::frame_kind::refused
                                 ? 56
                                 : 0;
  if (status > 0 && m.status == tensorpull::status::unsupported) {
    const std::uint64_t said = tensorpull::load_le16(bytes.data() + status);
    if (said > static_cast<std::uint64_t>(tensorpull::status::owner_lost))
      std::memcpy(out.data() + status, bytes.data() + status, 2);
  }
  return std::memcmp(out.data(), bytes.data(), bytes.size()) == 0;
}

/// What does not hold of the framing for the kinds `Kinds`, given a frame in memory of exactly its size, or null.
/// `accepted`: whether it reads the frame.
template <tensorpull::frame_set Kinds>
const char* layout_disagreement(std::span<const std::byte> bytes, bool& accepted) {
  using layout = tensorpull::basic_layout_framing<Kinds>;
  using tensorpull::errc;
  const auto lists = std::make_unique<typename layout::decode_storage>();
  const auto more_lists = std::make_unique<tensorpull::word_framing::decode_storage>();
  tensorpull::frame ours, theirs;
  const auto read = layout::decode(bytes, ours, *lists);
  const auto read_by_words = tensorpull::word_framing::decode(bytes, theirs, *more_lists);
  accepted = read.has_value();

  typename layout::short_storage short_lists;
  tensorpull::frame shortened;
  const auto read_short = layout::decode(bytes, shortened, short_lists);
  if (read_short.has_value() != accepted || (!accepted && read_short.error().code != read.error().code))
    return "without names and references the same frames are accepted";

  if (!accepted) {
    const errc why = read.error().code;
    if (why != errc::bad_frame && why != errc::unsupported_layout && why != errc::unexpected_frame &&
        why != errc::too_large)
      return "a frame is refused by one of four names";
    if (!read_by_words) return nullptr;
    if (!Kinds.has(theirs.kind))
      return why == errc::unexpected_frame || why == errc::unsupported_layout
                 ? nullptr
                 : "a kind that is not in the set is unexpected";
    if (is_as_written(bytes, theirs)) return "what our encoders write is accepted";
    return why == errc::unsupported_layout || why == errc::unexpected_frame ? nullptr
                                                                            : "another valid layout is unsupported";
  }
  if (!read_by_words) return "what is accepted is valid for the other framings";
  if (!Kinds.has(ours.kind)) return "only kinds of the set are accepted";
  if (!same_values(ours, theirs)) return "what is accepted is read to the same values";
  if (!is_as_written(bytes, theirs)) return "only what our encoders write is accepted";
  std::vector<std::uint64_t> room(bytes.size() / 8);
  const auto out = std::as_writable_bytes(std::span(room));
  const auto n = layout::encode(ours, out);
  if (!n || *n != bytes.size() || !is_as_written(out, ours)) return "what was read is written again";
  shortened.names = ours.names, shortened.references = ours.references;
  return same_values(ours, shortened) ? nullptr : "without names and references the rest is the same";
}
inline const char* layout_disagreement(std::span<const std::byte> bytes) {
  bool accepted = false;
  if (const char* const what = layout_disagreement<tensorpull::all_frames>(bytes, accepted); what != nullptr)
    return what;
  if (const char* const what = layout_disagreement<tensorpull::owner_frames>(bytes, accepted); what != nullptr)
    return what;
  return layout_disagreement<tensorpull::recipient_frames>(bytes, accepted);
}

}  // namespace test
