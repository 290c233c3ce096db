// What a hostile owner sends to a recipient that lands a model, in pieces of any size.
#include "sides.hpp"

namespace test::fuzz {
namespace {

template <class Transfer>
void check_outcome(const Transfer& t, const watched_land& to, const small_model& into, const tp::pull_request& asked,
                   bool verifies) {
  const auto outcome = t.outcome();
  if (!outcome) {
    const std::uint64_t landed = outcome.error().at;
    require(landed == to.taken.size(), "an error says how many bytes had landed");
    require(into.untouched_from(landed), "nothing is written behind what had landed");
    return;
  }
  require(
      to.finished && to.described && outcome->bytes == to.taken.size() && outcome->bytes == to.described->image_bytes,
      "what completed has all bytes");
  require(asked.version == 0 || outcome->version == asked.version, "what completed is the version that was asked for");
  const auto& schema = into.schema();
  const auto image = into.image_bytes();
  require(outcome->fingerprint == schema.fingerprint, "what completed has our schema");
  require(outcome->bytes - to.described->data_start == schema.data_bytes(),
          "what completed has as much data as our tensors");
  require(std::equal(to.taken.begin() + static_cast<std::ptrdiff_t>(to.described->data_start), to.taken.end(),
                     image.begin() + static_cast<std::ptrdiff_t>(schema.header_bytes), image.end()),
          "the tensors hold what arrived");
  if (outcome->outcome != tp::outcome::completed) return;
  require(verifies && (to.described->verifiable || !asked.subset.empty()), "only what was verified is completed");
  require(digest_of(to.taken) == outcome->digest, "what completed has the digest that it claims");
  require(!asked.subset.empty() || outcome->digest == outcome->version, "the digest of an image is its version");
}

/// Every chunk that a consumer heard of came in one frame that says so: this place, this version, these bytes.
void check_chunks(const_byte_span stream, const watched_land& to) {
  std::vector<tp::byte_range> missing = to.chunks;
  while (!stream.empty() && !missing.empty()) {
    const auto size = tp::detail::measure_frame(stream, ~std::size_t{0}, 16);
    if (!size || !*size) break;
    // the last frame may lack its padding
    if (tp::detail::payload_prefix::announces_payload(stream) && stream.size() >= tp::detail::payload_prefix::bytes) {
      const auto m = tp::detail::payload_prefix::read(stream.first<tp::detail::payload_prefix::bytes>());
      std::erase_if(missing, [&](const tp::byte_range& r) {
        return m && m->version == to.described->version && m->offset == r.begin && m->length == r.end - r.begin &&
               m->length <= stream.size() - tp::detail::payload_prefix::bytes &&
               std::memcmp(to.taken.data() + r.begin, stream.data() + tp::detail::payload_prefix::bytes, m->length) ==
                   0;
      });
    }
    stream = stream.subspan(std::min(**size, stream.size()));
  }
  require(missing.empty(), "a chunk is taken from the frame that is about it");
}

/// How much of the input may have been sent by an owner that answers one frame for each that it gets.
std::size_t answered(const_byte_span stream, const_byte_span sent) {
  std::size_t at = 0;
  while (!sent.empty() && at < stream.size()) {
    const auto asked = tp::detail::measure_frame(sent, sent.size(), 1);
    if (!asked || !*asked) break;
    sent = sent.subspan(**asked);
    const auto answer = tp::detail::measure_frame(stream.subspan(at), stream.size() - at, 512);
    if (!answer || !*answer) return stream.size();
    at += **answer;
  }
  return at;
}

/// One transfer until it ended or the input did. Gives how far it got: chunks that were whole, and more when it
/// completed.
template <class Chunking, class Integrity>
unsigned pull_once(party& side, input all, piecewise& stream, small_model& into, const pull_plan& plan,
                   std::uint64_t version, bool& broken) {
  into.reset();
  watched_land to(into);
  const auto names = into.names();
  const tp::pull_request asked = plan.request(names, version);
  tp::transfer<watched_land, Chunking, Integrity> t(to, asked, Chunking{}, side.end.next_id());
  side.end.begin_pull();
  const byte_span scratch(reinterpret_cast<std::byte*>(side.scratch.get()), 65536);
  for (int quiet = 0; quiet < 4 && !t.ended();) {
    if (plan.answers_in_turn) stream.allowed = answered(all, stream.out);
    if (plan.gives_up && stream.consumed() >= all.size() / 2) t.fail({tp::errc::cancelled, 0, 0, {}});
    const auto did = tp::pump_once(side.end, t, stream, scratch);
    if (!did) broken = true, t.fail(did.error());
    quiet = did && did->received + did->sent > 0 ? 0 : quiet + 1;
  }
  if (!t.ended()) t.fail({tp::errc::timed_out, 0, 0, {}});
  check_outcome(t, to, into, asked, Integrity::whole);
  if (!plan.subset) check_chunks(all.first(stream.consumed()), to);  // a subset counts from its first tensor
  if (!broken) {
    side.end.end_pull(t);
    if (const auto farewell = t.farewell()) side.end.send_control(*farewell);
  }
  return static_cast<unsigned>(to.taken.size() / 64) + (t.outcome() ? 1000 : 0);
}

}  // namespace

static unsigned replies(input in) {
  static small_model all, part(3, true);
  static const std::uint64_t version = [] {
    small_model published;
    published.fill(1);
    return published.version();
  }();
  const settings s = settings::of(in);
  const pull_plan plan(s.scenario);
  small_model& into = plan.subset ? part : all;
  party side(22, 2);
  side.box.keep = false;
  piecewise stream(s, stream_of(in));
  unsigned reached = 0;
  bool broken = false;
  plan.with_policies([&]<class Chunking, class Integrity>(Chunking, Integrity) {
    for (int i = 0; i < (plan.twice ? 2 : 1) && !broken; ++i) {
      reached += pull_once<Chunking, Integrity>(side, stream_of(in), stream, into, plan, version, broken);
      require(into.guards_intact(), "nothing is written around the tensors");
    }
  });
  side.end.closed();
  require(side.pool.available() == 2, "a connection that ends gives its buffers back");
  return reached;
}
static const registered replies_target{{"replies", replies, true, settings::bytes}};

}  // namespace test::fuzz
