// What a hostile recipient sends to an owner, in pieces of any size, while its answers are taken in pieces of any size.
#include "sides.hpp"

namespace test::fuzz {
namespace {

/// One version of one reference, and where in the owner's output it stopped to be published.
struct published {
  tp::ref_id id;
  std::uint64_t version;
  byte_vector image;
  std::size_t until = ~std::size_t{0};
  std::uint64_t payload = 0;  ///< bytes of it that were found in the output
};

class watched_owner {
 public:
  explicit watched_owner(owning_side& side) : side_(side) {
    versions_.push_back({first_ref, side.first->version(), side.first->image_bytes()});
    versions_.push_back({second_ref, unverified_version, side.second->image_bytes()});
  }

  /// The second model is withdrawn, its memory used for something else, and published anew if `again`.
  void change(std::size_t sent, bool again) {
    require(side_.end.references.withdraw(second_ref).has_value(), "nothing is pinned between two calls");
    versions_[1].until = sent;
    sent_before_ = side_.end.status(second_ref).bytes_sent;
    side_.second->reset();
    if (!again) return;
    side_.second->fill(3);
    side_.publish(second_ref, *side_.second, unverified_version + 1, false);
    versions_.push_back({second_ref, unverified_version + 1, side_.second->image_bytes()});
  }

  /// Everything that was sent is whole frames (but for the end), and their payload is that of a published version.
  unsigned check(const_byte_span out, bool ended_well) {
    unsigned count = 0;
    std::size_t at = 0;
    while (out.size() - at >= 8) {
      const auto rest = out.subspan(at);
      const auto size = tp::detail::measure_frame(rest, 1u << 20, 1);
      require(size.has_value(), "an owner sends frames of one segment");
      if (rest.size() < 24) break;
      const bool whole = *size && **size <= rest.size();
      if (tp::detail::payload_prefix::announces_payload(rest)) {
        if (rest.size() >= tp::detail::payload_prefix::bytes) check_chunk(rest, at);
      } else if (whole) {
        const decoded d{frame(rest.first(**size))};
        require(d.outcome.has_value(), "an owner sends frames that can be decoded");
        require(!tp::is_request(d.m.kind) && d.m.kind != tp::frame_kind::nothing, "an owner answers and does not ask");
      }
      if (!whole) break;
      at += **size;
      ++count;
    }
    require(!ended_well || at == out.size(), "when nothing is left to send the last frame is whole");
    return count;
  }

  void check_counts() const {
    for (const tp::publication& p : side_.end.storage.view().slots) {
      require(p.pins == 0, "nothing is pinned when no write is under way");
      const auto& c = p.counts;
      require(c.final() <= c.acquired, "nobody ends who has not begun");
    }
    require(side_.end.status(first_ref).bytes_sent == versions_[0].payload, "payload is counted as it is sent");
    const std::uint64_t second = versions_.size() == 3 || versions_[1].until != ~std::size_t{0}
                                     ? sent_before_
                                     : side_.end.status(second_ref).bytes_sent;
    require(second == versions_[1].payload, "payload is counted until it is withdrawn");
    if (versions_.size() == 3)
      require(side_.end.status(second_ref).bytes_sent == versions_[2].payload,
              "payload is counted anew for a new version");
  }

 private:
  void check_chunk(const_byte_span rest, std::size_t at) {
    const auto m = tp::detail::payload_prefix::read(rest.first<tp::detail::payload_prefix::bytes>());
    require(m.has_value(), "an owner's prefixes are right");
    published* found = nullptr;
    for (published& p : versions_)
      if (p.id == m->ref && p.version == m->version) found = &p;
    require(found != nullptr, "only published versions are sent");
    const auto payload = rest.subspan(tp::detail::payload_prefix::bytes);
    const std::size_t here = std::min<std::size_t>(payload.size(), m->length);
    require(at + tp::detail::payload_prefix::bytes + here <= found->until || (here == 0 && at < found->until),
            "nothing is sent after it was withdrawn");
    require(m->length > 0 && m->offset < found->image.size() && m->length <= found->image.size() - m->offset,
            "a chunk lies in the image");
    const auto expected = const_byte_span(found->image).subspan(static_cast<std::size_t>(m->offset), m->length);
    require(std::equal(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(here), expected.begin()),
            "a chunk is the image's bytes");
    require(m->digest == 0 || m->digest == digest_of(expected), "a chunk's digest is that of its bytes");
    found->payload += here;
  }

  owning_side& side_;
  std::vector<published> versions_;
  std::uint64_t sent_before_ = 0;
};

}  // namespace

static unsigned requests(input in) {
  static small_model a, b(4);
  owning_side side(a, b);
  watched_owner watched(side);
  const settings s = settings::of(in);
  const bool changes = (s.scenario & 1) != 0;
  side.end.box.takes = (s.scenario & 4) == 0;
  side.end.box.keep = false;
  piecewise stream(s, stream_of(in));
  tp::no_transfer idle;
  const byte_span scratch(reinterpret_cast<std::byte*>(side.end.scratch.get()), 65536);

  bool changed = false, failed = false;
  for (int quiet = 0; quiet < 4 && !failed;) {
    if (changes && !changed && stream.consumed() > stream_of(in).size() / 2)
      watched.change(stream.out.size(), (s.scenario & 2) != 0), changed = true;
    const auto did = tp::pump_once(side.end.end, idle, stream, scratch);
    failed = !did;
    for (const tp::publication& p : side.end.storage.view().slots)
      require(p.pins == 0, "a pin lasts no longer than a write");
    quiet = did && did->received + did->sent > 0 ? 0 : quiet + 1;
  }
  require(side.end.box.count <= stream_of(in).size() / 16, "an application message is in the input");
  const unsigned answers = watched.check(stream.out, !failed && side.end.end.output_idle());
  require(side.end.box.takes || side.end.box.count == 0, "who is not ready gets no message");
  side.end.end.closed();
  require(side.end.pool.available() == 2, "a connection that ends gives its buffers back");
  watched.check_counts();
  require(a.guards_intact() && b.guards_intact(), "an owner writes nothing around its tensors");
  return answers + static_cast<unsigned>(side.end.box.count);
}
static const registered requests_target{{"requests", requests, true, settings::bytes}};

}  // namespace test::fuzz
