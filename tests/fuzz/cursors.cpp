// A cursor that anybody may have written, beside a destination that holds anything: the transfer that resumes from it
// is exact, or starts at 0.
#include "sides.hpp"
#include "target.hpp"

#include <tensorpull/consumers/resume_cursor.hpp>

#include <algorithm>
#include <cstring>

namespace test::fuzz {
namespace {

/// One byte says how much of the cursor is put right, and what lies in the destination; then the cursor; then bytes of
/// the destination.
enum : std::uint8_t {
  right_reference = 1,
  right_schema = 2,
  right_version = 4,
  offset_inside = 8,
  right_bytes = 16,
  right_digest = 32,
};

}  // namespace

static unsigned cursors(input in) {
  if (in.size() < 1) return 0;
  const auto mode = static_cast<std::uint8_t>(in[0]);
  in = in.subspan(1);
  const auto decoded = tp::decode_cursor(in.first(std::min<std::size_t>(in.size(), tp::resume_cursor::encoded_bytes)));
  if (decoded) {
    const auto again = tp::encode(*decoded);
    require(std::memcmp(again.data(), in.data(), again.size()) == 0, "a cursor is written as it was read");
  }
  require(!decoded || in.size() >= tp::resume_cursor::encoded_bytes, "a part of a cursor is none");
  if (!decoded) return 0;

  const model source = mixed_model().fill(1);
  model mine = mixed_model();
  const auto& schema = source.schema();
  tp::resume_cursor c = *decoded;
  if (mode & right_reference) c.ref = first_ref;
  if (mode & right_schema) c.fingerprint = schema.fingerprint;
  if (mode & right_version) c.version = version_of(source);
  if (mode & offset_inside) c.offset = 1 + c.offset % schema.image_bytes;
  const auto d = mine.destination();
  for (std::size_t i = 0; i < schema.tensor_count; ++i) {
    const auto& t = schema.tensors[i];
    if (mode & right_bytes) std::copy_n(source.source().address(i), t.end - t.begin, d.address(i));
  }
  const auto rest = in.subspan(tp::resume_cursor::encoded_bytes);
  for (std::size_t k = 0; k + 2 < rest.size() && schema.data_bytes() > 0; k += 3) {  // edited since
    const std::uint64_t at = (static_cast<std::uint64_t>(rest[k]) << 8 | static_cast<std::uint64_t>(rest[k + 1])) %
                             schema.data_bytes();
    const std::size_t i = tp::tensor_at(schema, at);
    d.address(i)[at - schema.tensors[i].begin] ^= rest[k + 2];
  }
  if ((mode & right_digest) && c.offset <= schema.image_bytes)
    c.digest = *tp::range_digest<tp::xxhash_digest>(d, 0, c.offset);

  pair p;
  p.left.publish(source, first_ref);
  tp::land to(d);
  tp::pull_request request{.ref = first_ref};
  transfer<tp::fixed_bytes<512>> t(to, request, {}, 1);
  const bool resumed = t.resume(c);
  const auto done = p.pull(t);
  if (!done) {
    require(resumed, "without a cursor nothing is in the way");
    // the version in a cursor is a promise, and the digest of the whole checks what the prefix's own digest let pass
    require(done.error() == tp::errc::stale_version || done.error() == tp::errc::digest_mismatch,
            "the error says which");
  } else {
    require(done->outcome == tp::outcome::completed && mine.same_tensors(source),
            "completed means the published bytes");
  }
  require(mine.guards_intact(), "nothing outside is written");
  return resumed ? 2 : 1;
}
static const registered cursors_target{{"cursors", cursors}};

}  // namespace test::fuzz
