// Any datagrams at an end that owns and takes messages, and at one that pulls, between the datagrams of these two.
#include "sides.hpp"

#include <tensorpull/protocol/datagrams/datagram_endpoint.hpp>
#include <tensorpull/protocol/datagrams/datagram_transfer.hpp>

namespace test::fuzz {
namespace {

using std::chrono::microseconds;
using end_type = tp::datagram_endpoint<tested_framing, tp::default_limits, owner, inbox>;

constexpr std::size_t datagram_bytes = 1200;

/// One datagram of an end, in memory that is aligned; empty: it has nothing to say.
template <class Transfer>
std::vector<std::uint64_t> next_of(end_type& end, Transfer& t, byte_span scratch, microseconds now) {
  tp::datagram_plan plan;
  end.plan_datagram(t, plan, scratch, now);
  std::vector<std::uint64_t> d(plan.bytes / 8);
  if (plan.bytes == 0) return d;
  require(plan.bytes <= datagram_bytes && plan.bytes % 8 == 0 && plan.span_count <= tp::datagram_plan::max_spans,
          "a datagram fits its link");
  for (std::size_t i = 0, at = 0; i < plan.span_count; at += plan.spans[i++].size())
    std::memcpy(reinterpret_cast<std::byte*>(d.data()) + at, plan.spans[i].data(), plan.spans[i].size());
  end.sent(t, plan, true);
  return d;
}
/// The next datagram of the input: a whole frame and some more, or if there is none, what is left.
input cut(input rest, std::size_t more) {
  std::size_t at = 0;
  for (std::size_t i = 0; i <= more; ++i) {
    const auto size = tp::detail::measure_frame(rest.subspan(at), rest.size() - at, 512);
    if (!size || !*size) return at > 0 ? rest.first(at) : rest.first(std::min(rest.size(), datagram_bytes));
    if (at > 0 && at + **size > datagram_bytes) break;
    at += **size;
  }
  return rest.first(at);
}
const_byte_span as_bytes(const std::vector<std::uint64_t>& d) { return std::as_bytes(std::span(d)); }

}  // namespace

static unsigned datagrams(input in) {
  static small_model a, b(4), into;
  owning_side side(a, b);
  party other(9, 2);
  const settings s = settings::of(in);
  side.end.box.keep = other.box.keep = false;
  side.end.box.takes = (s.scenario & 4) == 0;
  into.reset();
  watched_land to(into);
  tp::pull_request asked;
  asked.ref = first_ref;
  asked.recipient = {5};
  end_type mine(other.references, other.pool, other.box, datagram_bytes, 0x1000000000000001),
      theirs(side.end.references, side.end.pool, side.end.box, datagram_bytes, 3);
  tp::datagram_transfer<watched_land, tp::fixed_bytes<64>, tp::image_digest> t(to, asked, {}, mine.next_id());
  alignas(8) std::byte hold[512];
  t.hold(hold);
  t.fits(datagram_bytes);
  mine.begin_pull();
  if ((s.scenario & 1) != 0) theirs.doubt();
  tp::no_transfer idle;
  const byte_span scratch(reinterpret_cast<std::byte*>(side.end.scratch.get()), 65536);
  auto rest = stream_of(in);
  unsigned understood = 0;
  std::size_t turn = 0;
  microseconds now{1000};
  for (int quiet = 0; quiet < 60 && !t.ended(); now += 20'000us) {
    quiet = rest.empty() ? quiet + 1 : 0;
    if (const auto foreign = cut(rest, s.reads[turn++ % s.reads.size()] % 3); !foreign.empty()) {
      std::vector<std::uint64_t> d(foreign.size() / 8 + 1);
      std::memcpy(d.data(), foreign.data(), foreign.size());
      rest = rest.subspan(foreign.size());
      understood += theirs.received(idle, as_bytes(d).first(foreign.size()), now).has_value();
      if ((s.scenario & 2) != 0) understood += mine.received(t, as_bytes(d).first(foreign.size()), now).has_value();
    }
    for (int k = 0; k < 8; ++k) {
      const auto up = next_of(mine, t, scratch, now);
      if (!up.empty())
        require(theirs.received(idle, as_bytes(up), now).has_value() || (s.scenario & 2) != 0,
                "what an end asks for is understood");
      const auto down = next_of(theirs, idle, scratch, now);
      if (!down.empty()) (void)mine.received(t, as_bytes(down), now);
    }
    for (const tp::publication& p : side.end.storage.view().slots)
      require(p.pins == 0, "a pin lasts no longer than a datagram");
  }
  if (t.ended() && t.outcome()) {
    require(digest_of(to.taken) == t.outcome()->version && t.outcome()->version == a.version(),
            "what completed are the published bytes");
  }
  mine.closed();
  theirs.closed();
  require(side.end.pool.available() == 2 && other.pool.available() == 2,
          "a connection that ends gives its buffers back");
  require(a.guards_intact() && b.guards_intact(), "an owner writes nothing around its tensors");
  return understood;
}
static const registered datagrams_target{{"datagrams", datagrams, true, settings::bytes}};

}  // namespace test::fuzz
