// One frame: its length by the segment table, a payload's prefix, and what decode() makes of it.
#include "support/words.hpp"
#include "target.hpp"

#include "support/frames.hpp"

#include <optional>

namespace test::fuzz {
namespace {

/// The more of a frame is there, the more is known, and never anything else.
void measure(const_byte_span bytes) {
  for (const std::size_t segments : {std::size_t{1}, std::size_t{16}})
    for (const std::size_t most : {std::size_t{4096}, ~std::size_t{0}}) {
      const auto whole = tp::detail::measure_frame(bytes, most, segments);
      if (whole && *whole)
        require(**whole <= most && **whole >= 16 && **whole % 8 == 0,
                "a frame has a table, a word, and no more than the cap");
      for (std::size_t n = 0; n < std::min<std::size_t>(bytes.size(), 96); n += n < 16 ? 3 : 11) {
        const auto part = tp::detail::measure_frame(bytes.first(n), most, segments);
        if (part)
          require(!*part || (whole && *whole && **whole == **part), "what a part of a frame says, the whole says");
        else require(!whole && part.error().code == whole.error().code, "a frame that is refused stays refused");
      }
    }
}

bool same(const tp::frame& a, const tp::frame& b) {
  const auto rows = [](const tp::schema_row& x, const tp::schema_row& y) {
    return x.name == y.name && x.dtype == y.dtype &&
           std::equal(x.shape.begin(), x.shape.end(), y.shape.begin(), y.shape.end());
  };
  const auto ranges = [](const auto& x, const auto& y) { return x.begin == y.begin && x.end == y.end; };
  return a.kind == b.kind && a.status == b.status && a.id == b.id && a.ref == b.ref && a.version == b.version &&
         a.nonce == b.nonce && a.fingerprint == b.fingerprint && a.digest == b.digest && a.offset == b.offset &&
         a.image_bytes == b.image_bytes && a.data_start == b.data_start && a.tensors == b.tensors &&
         a.length == b.length && a.delay_ms == b.delay_ms && a.application == b.application && a.window == b.window &&
         a.flag == b.flag && a.chunk_digest == b.chunk_digest && a.recipient == b.recipient && a.reason == b.reason &&
         std::equal(a.rows.begin(), a.rows.end(), b.rows.begin(), b.rows.end(), rows) &&
         std::equal(a.names.begin(), a.names.end(), b.names.begin(), b.names.end()) &&
         std::equal(a.slices.begin(), a.slices.end(), b.slices.begin(), b.slices.end(), ranges) &&
         std::equal(a.ranges.begin(), a.ranges.end(), b.ranges.begin(), b.ranges.end(), ranges) &&
         std::equal(a.references.begin(), a.references.end(), b.references.begin(), b.references.end()) &&
         std::equal(a.body.begin(), a.body.end(), b.body.begin(), b.body.end());
}

unsigned prefix(const_byte_span bytes) {
  using prefix = tp::detail::payload_prefix;
  if (bytes.size() < prefix::bytes) return 0;
  const bool announced = prefix::announces_payload(bytes);
  const auto m = prefix::read(bytes.first<prefix::bytes>());
  if (!m || !announced) return 0;
  require(m->length <= tp::max_payload_bytes && m->kind == tp::frame_kind::chunk,
          "a payload has a length that a list can have");
  std::array<std::byte, prefix::bytes> again;
  prefix::write(*m, again);
  const auto measured = tp::detail::measure_frame(again, ~std::size_t{0}, 1);
  require(measured && *measured && **measured == prefix::frame_bytes(m->length),
          "the segment table says what the prefix says");
  const auto back = prefix::read(again);
  require(prefix::announces_payload(again) && back && same(*back, *m), "a prefix is read as it was written");
  return 1;
}

/// Views lie in the frame or in the storage, or are empty.
void check_views(const decoded& d) {
  const auto inside = [](const void* p, std::size_t n, const void* from, std::size_t size) {
    const auto a = reinterpret_cast<std::uintptr_t>(p), b = reinterpret_cast<std::uintptr_t>(from);
    return n == 0 || (a >= b && n <= size && a - b <= size - n);
  };
  const auto in_frame = [&](const auto& view) {
    require(inside(view.data(), view.size(), d.from.bytes().data(), d.from.size()), "text and bodies lie in the frame");
  };
  const auto in_storage = [&](const auto& span) {
    require(inside(span.data(), span.size_bytes(), &d.lists, sizeof d.lists), "references lie in the storage");
  };
  in_storage(d.m.references);
  for (const auto& r : d.m.rows) in_frame(r.name), in_frame(r.dtype);
  for (const auto n : d.m.names) in_frame(n);
  in_frame(d.m.body);
}

}  // namespace

static unsigned frames(input in) {
  const frame given(in);
  measure(given.bytes());
  const unsigned payload = prefix(given.bytes());
  const decoded first(given);
  tp::frame by_library;
  tp::capnp_framing::decode_storage lists;
  const auto with_library = tp::capnp_framing::decode(given.bytes(), by_library, lists);
  require(with_library.has_value() == first.outcome.has_value(), "both framings accept the same frames");
  if (!first.outcome) return payload;
  require(same(first.m, by_library), "both framings read the same");
  check_views(first);
  static std::vector<std::uint64_t> room(16'384);
  const auto n = tp::word_framing::encode(first.m, std::as_writable_bytes(std::span(room)));
  require(n.has_value(), "what was decoded can be encoded");
  const decoded second(frame(std::as_bytes(std::span(room)).first(*n)));
  require(second.outcome.has_value() && same(first.m, second.m), "what was decoded, encoded and decoded is the same");
  return payload + 1;
}
static const registered frames_target{{"frames", frames, true}};

}  // namespace test::fuzz
