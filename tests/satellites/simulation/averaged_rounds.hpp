// A server that averages its peers' updates, in virtual time, with faults from a seed: connections that end at any
// byte, confirmations that are lost, peers that restart with a new reference or other values or vanish, repeats, late
// repeats, and rounds that end while updates are under way. After each round the average has to be the one that is
// computed, in other arithmetic, from the updates that it reports as counted.
#pragma once

#include "support/models.hpp"

#include <tensorpull/chunking/policies.hpp>
#include <tensorpull/consumers/average/weighted_average.hpp>
#include <tensorpull/framing/word_framing.hpp>
#include <tensorpull/integrity/xxhash/policies.hpp>
#include <tensorpull/links/pump.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>
#include <tensorpull/protocol/owner/owner.hpp>
#include <tensorpull/protocol/recipient/transfer.hpp>
#include <tensorpull/protocol/retry.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/satellites/simulation/simulated_stream.hpp>

#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace tests {

namespace tp = tensorpull;

/// What happened in one run, or in many.
struct averaging_report {
  std::uint64_t rounds = 0, averages = 0, counted = 0, told = 0;
  std::uint64_t untold = 0;      ///< updates that counted, and whose confirmation was not heard
  std::uint64_t repeats = 0;     ///< updates that came whole although they counted, or although their round was over
  std::uint64_t continued = 0;   ///< updates that counted after an earlier one of the same key had stopped half-way
  /// updates that failed with update_under_way, update_changed, cancelled
  std::uint64_t under_way = 0, changed = 0, overtaken = 0;
  std::uint64_t partial = 0;  ///< rounds whose average was an error, as it has to be
  const char* first_failure = nullptr;

  void add(const averaging_report& r) noexcept {
    for (const auto member : {&averaging_report::rounds, &averaging_report::averages, &averaging_report::counted,
                              &averaging_report::told, &averaging_report::untold, &averaging_report::repeats,
                              &averaging_report::continued, &averaging_report::under_way, &averaging_report::changed,
                              &averaging_report::overtaken, &averaging_report::partial})
      this->*member += r.*member;
    if (first_failure == nullptr) first_failure = r.first_failure;
  }
};

/// One run. `Average`: the weighted_average under test.
template <class Average>
class averaged_rounds {
 public:
  /// `forged`: updates that count are added again as somebody else's, behind the oracle's back, which has to notice.
  explicit averaged_rounds(std::uint64_t seed, bool forged = false)
      : random_(seed), forged_(forged), result_(make_model()),
        buffers_(*tp::chunk_buffers::make(256, 2 + random_.below(3))),
        average_(*Average::make(result_.destination(), buffers_,
                                {.max_peers = most_peers, .first_round = 1 + random_.below(3)})),
        peers_(1 + random_.below(most_peers)) {}

  averaging_report run() {
    const std::uint64_t rounds = 1 + random_.below(3);
    for (std::uint64_t r = 0; r < rounds; ++r) {
      truth_.clear();
      for (peer& p : peers_) {
        p.to_do = 1 + static_cast<int>(random_.below(4));
        publish(p, true);
      }
      // some rounds end before their updates do
      const std::uint64_t until = clock_.now() + (random_.chance(300) ? random_.below(20'000) : 60'000'000);
      while (clock_.now() < until && step()) {
      }
      end_round();
    }
    while (step()) {
    }
    attempts_.clear();
    if (buffers_.available() != buffers_.count()) fail("a chunk buffer did not come back");
    return report_;
  }

 private:
  static constexpr std::size_t most_peers = 4;
  static constexpr std::uint64_t step_us = 250, patience_us = 15'000;

  using machine = tp::owner<tp::xxhash_digest>;
  using chunking = tp::bytes_up_to<256>;
  using owner_end = tp::endpoint<tp::word_framing, tp::default_limits, machine, tp::ignore_messages>;
  using server_end = tp::endpoint<tp::word_framing, tp::default_limits, tp::no_owner, tp::ignore_messages>;

  struct owner_process {
    explicit owner_process(tp::testing::seeded_random seeded)
        : random(seeded), references(storage, [this] { return random(); }), memory(2 * 4096 / 8),
          pool(std::as_writable_bytes(std::span(memory)), 4096) {}
    tp::testing::seeded_random random;
    tp::owner_storage<1, 32> storage;
    machine references;
    std::vector<std::uint64_t> memory;
    tp::buffer_pool<> pool;
    tp::ignore_messages handler;
  };
  struct peer {
    std::unique_ptr<test::model> values;
    std::unique_ptr<owner_process> process;
    tp::ref_id ref{};
    double weight = 1;
    int to_do = 0;  ///< attempts that the server still makes
  };
  /// What has to be true of a peer's update in this round, as its consumer saw it.
  struct counted {
    std::uint64_t version;
    double weight;
    bool told = false;
  };
  class witness : public Average::update {
   public:
    witness(averaged_rounds& all, double weight, const tp::update_key& key) noexcept
        : Average::update(all.average_, weight, key), all_(all), weight_(weight), key_(key) {}
    tp::result<void> begin(const tp::description& d) noexcept {
      const tp::update_record* const before = all_.average_.find(key_.peer);
      continues_ = key_.round == all_.average_.round() && before != nullptr &&
                   before->state == tp::update_state::stopped && before->added_bytes > 0;
      return Average::update::begin(d);
    }
    tp::result<void> finish(const tp::receipt& r) noexcept {
      const auto ok = Average::update::finish(r);
      if (!ok) return ok;
      finished = true;
      const bool first = key_.round == all_.average_.round() &&
                         all_.truth_.try_emplace(key_.peer.id().value, counted{r.version, weight_}).second;
      if (!first) ++all_.report_.repeats;
      else if (continues_) ++all_.report_.continued;
      return ok;
    }
    void confirmed() noexcept {
      Average::update::confirmed();
      if (const auto c = all_.truth_.find(key_.peer.id().value);
          key_.round == all_.average_.round() && c != all_.truth_.end())
        c->second.told = true;
    }
    bool finished = false;

   private:
    averaged_rounds& all_;
    double weight_;
    tp::update_key key_;
    bool continues_ = false;
  };
  using transfer_type = tp::transfer<witness, chunking, tp::chunk_and_image_digest>;
  struct connection {
    connection(std::shared_ptr<tp::testing::simulated_wire> w, owner_process& o)
        : wire(w), left(std::in_place, w, 0), right(w, 1), theirs(std::in_place, o.references, o.pool, o.handler),
          memory(2 * 4096 / 8), pool(std::as_writable_bytes(std::span(memory)), 4096) {}
    std::shared_ptr<tp::testing::simulated_wire> wire;
    std::optional<tp::testing::simulated_stream> left;
    tp::testing::simulated_stream right;
    std::optional<owner_end> theirs;
    std::vector<std::uint64_t> memory;
    tp::buffer_pool<> pool;
    tp::ignore_messages handler;
    tp::no_owner none;
    server_end ours{none, pool, handler};
  };
  struct attempt {
    attempt(averaged_rounds& all, std::size_t who, const tp::update_key& key, double weight,
            const tp::pull_request& request, std::uint64_t chunk)
        : peer(who), to(all, weight, key), t(to, request, {chunk}, 1) {}
    std::size_t peer;
    witness to;
    transfer_type t;
    std::unique_ptr<connection> over;
    std::uint64_t moved_at = 0;
    int tries = 2;
    bool struck = false;
  };

  void fail(const char* what) noexcept {
    if (report_.first_failure == nullptr) report_.first_failure = what;
  }
  static test::model make_model() {
    test::model m;
    m.add("w", tp::dtype::f32, {61}).add("b", tp::dtype::f32, {7, 9}).ready();
    return m;
  }
  static tp::update_key key_of(std::size_t peer, std::uint64_t round) { return {tp::recipient_id{peer + 1}, round}; }

  /// Starts the peer's process; with `other` values, weight and reference, or with the same.
  void publish(peer& p, bool other) {
    for (auto& a : attempts_)
      if (&peers_[a->peer] == &p && a->over) a->over->theirs.reset(), a->over->left.reset();
    p.process.reset();
    if (other || !p.values) {
      p.values = std::make_unique<test::model>(make_model());
      std::vector<float> all(p.values->schema().data_bytes() / sizeof(float));
      for (float& v : all) v = static_cast<float>(random_.below(1000));  // whole numbers: their float sums are exact
      const auto d = p.values->destination();
      for (std::size_t i = 0, at = 0; i < d.schema->tensor_count;
           at += d.schema->tensors[i++].size_bytes() / sizeof(float))
        std::memcpy(d.address(i), &all[at], static_cast<std::size_t>(d.schema->tensors[i].size_bytes()));
      p.weight = static_cast<double>(1 + random_.below(5));
      published_[test::version_of(*p.values)] = std::move(all);
    }
    if (other || random_.chance(500)) p.ref = {random_(), random_() | 1};
    p.process = std::make_unique<owner_process>(random_.fork());
    if (!p.process->references.publish(p.values->source(), test::version_of(*p.values), true, p.ref, 0))
      fail("the peer cannot publish");
  }

  void begin(std::size_t who) {
    peer& p = peers_[who];
    --p.to_do;
    if (!p.process) return;
    const std::uint64_t now = average_.round();
    const std::uint64_t round = now > 1 && random_.chance(100) ? now - 1 : now;
    auto a = std::make_unique<attempt>(
        *this, who, key_of(who, round), p.weight,
        tp::pull_request{.ref = p.ref, .window = static_cast<std::uint32_t>(1 + random_.below(4))},
        1 + random_.below(256));
    connect(*a);
    attempts_.push_back(std::move(a));
  }
  void connect(attempt& a) {
    tp::testing::wire_conditions c;
    c.latency = std::chrono::microseconds(random_.below(500));
    c.capacity_bytes = static_cast<std::size_t>(random_.chance(300) ? 50 + random_.below(500) : 8192);
    if (random_.chance(300)) c.most_per_read = 1 + static_cast<std::size_t>(random_.below(200));
    auto wire = std::make_shared<tp::testing::simulated_wire>(clock_, c, random_.fork());
    const std::uint64_t image = result_.schema().image_bytes;
    if (random_.chance(250)) wire->from(0).cut_after(random_.below(2 * image));
    if (random_.chance(100)) wire->from(1).cut_after(random_.below(600));
    using kind = tp::testing::frame_fault_kind;
    if (random_.chance(150))
      wire->from(0).faults.arm({random_.chance(500) ? kind::flip_payload : kind::drop, random_.below(6), random_()});
    a.over = std::make_unique<connection>(std::move(wire), *peers_[a.peer].process);
    a.over->ours.begin_pull();
    a.moved_at = clock_.now();
  }

  /// Lets everybody move once. False: nobody has anything left to do.
  bool step() {
    clock_.advance_to(clock_.now() + 1 + random_.below(step_us));
    bool more = false;
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      more |= peers_[i].to_do > 0;
      if (peers_[i].to_do > 0 && random_.chance(60)) begin(i);
      if (!random_.chance(4)) continue;
      if (peers_[i].to_do == 0 || random_.chance(100)) peers_[i].to_do = 0;  // it vanishes
      else publish(peers_[i], random_.chance(200));
    }
    for (std::size_t i = 0; i < attempts_.size();) {
      move(*attempts_[i]);
      if (!attempts_[i]->t.ended()) ++i;
      else end(i);
    }
    return more || !attempts_.empty();
  }
  void move(attempt& a) {
    connection& c = *a.over;
    tp::no_transfer idle;
    std::uint64_t moved = 0;
    if (c.theirs) {
      const auto did = tp::pump_once(*c.theirs, idle, *c.left, std::as_writable_bytes(std::span(scratch_)));
      if (did) moved += did->received + did->sent;
      else c.theirs.reset(), c.left.reset();
    }
    const auto did = tp::pump_once(c.ours, a.t, c.right, std::span<std::byte>());
    if (did) moved += did->received + did->sent;
    if (moved > 0) a.moved_at = clock_.now();
    if (a.to.finished && !a.struck) {  // its last byte was verified: the confirmation is on its way
      a.struck = true;
      const std::uint64_t how = random_.below(6);
      if (how == 0) c.wire->reset();
      else if (how == 1) c.wire->lose();
      else if (how == 2) publish(peers_[a.peer], random_.chance(300));
      else if (how == 3 && random_.chance(200)) a.t.fail({tp::errc::cancelled, 0, 0, {}});
    }
    if (a.t.ended()) return;
    std::optional<tp::error> why;
    if (!did) why = did.error();
    else if (clock_.now() - a.moved_at > patience_us) why = tp::error{tp::errc::timed_out, 0, 0, {}};
    else if (a.t.pause().count() > 0) why = tp::error{tp::errc::busy, 0, 0, {}};
    if (!why) return;
    if (!tp::is_passing(why->code) || a.tries-- == 0 || !peers_[a.peer].process) return a.t.fail(*why);
    c.ours.end_pull(a.t);
    connect(a);
    a.t.restart();
  }
  void end(std::size_t i) {
    attempt& a = *attempts_[i];
    a.over->ours.end_pull(a.t);
    if (const auto done = a.t.outcome(); !done) {
      report_.under_way += done.error().code == tp::errc::update_under_way;
      report_.changed += done.error().code == tp::errc::update_changed;
      report_.overtaken += done.error().code == tp::errc::cancelled;
    }
    if (forged_ && a.to.finished) forge(peers_[a.peer]);
    attempts_.erase(attempts_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  /// Adds a peer's values once more, under the key of somebody whom the truth then lacks.
  void forge(const peer& p) {
    const auto& s = p.values->schema();
    typename Average::update again(average_, 1, {tp::recipient_id{most_peers + 1}, average_.round()});
    const tp::description d{
        {1, 2}, test::version_of(*p.values), s.fingerprint, s.image_bytes, s.header_bytes, s.tensor_count, true};
    if (!again.begin(d)) return;
    const auto image = p.values->image_bytes();
    for (std::uint64_t at = 0; at < image.size();) {
      std::array<std::span<std::byte>, 1> out;
      const auto room = again.prepare(at, std::min<std::uint64_t>(image.size() - at, 100), out);
      if (room.bytes == 0) return;
      std::memcpy(out[0].data(), image.data() + at, out[0].size());
      if (!again.commit(at, out[0]) || !again.chunk(at, room.bytes)) return;
      at += room.bytes;
    }
    (void)again.finish({});
  }

  // The oracle.
  void end_round() {
    ++report_.rounds;
    std::size_t reported = 0;
    bool spoiled = false, adding = false, stopped = false;
    for (const tp::update_record& u : average_.updates()) {
      adding |= u.state == tp::update_state::under_way && u.added_bytes > 0;
      stopped |= u.state == tp::update_state::stopped && u.added_bytes > 0;
      spoiled |= u.state == tp::update_state::spoiled;
      if (!u.counts()) continue;
      ++reported;
      const auto c = truth_.find(u.peer.id().value);
      if (c == truth_.end()) return fail("an update is reported as counted whose last byte was never verified");
      if (c->second.version != u.version || c->second.weight != u.weight)
        return fail("another update is reported as counted than the first that was verified");
      if (c->second.told != (u.state == tp::update_state::told)) return fail("the report is wrong about who was told");
      ++report_.counted;
      ++(c->second.told ? report_.told : report_.untold);
    }
    if (reported != truth_.size()) return fail("an update whose last byte was verified is not reported as counted");
    if (spoiled) return fail("nobody published one thing and sent another");

    constexpr bool by_reached = Average::partial == tp::partial_updates::divide_by_reached;
    const auto done = average_.finish();
    const bool must_fail = adding || (stopped && Average::partial == tp::partial_updates::error_on_partial);
    if (must_fail && (done || done.error().code != tp::errc::partial_update))
      return fail("an average of updates that stopped half-way");
    if (!done) {
      if (!must_fail && (done.error().code != tp::errc::no_updates || reported > 0))
        return fail("no average, and no reason for that");
      ++report_.partial;
    } else {
      if (!is_mean(by_reached)) return fail("the average is not the one of the updates that are reported as counted");
      ++report_.averages;
    }
    average_.reset();
  }
  bool is_mean(bool by_reached) {
    const auto d = result_.destination();
    for (std::size_t i = 0, at = 0; i < d.schema->tensor_count; ++i)
      for (std::size_t k = 0; k < d.schema->tensors[i].size_bytes() / sizeof(float); ++k, ++at) {
        double sum = 0, weight = 0;
        for (const tp::update_record& u : average_.updates())
          if (u.counts() || (by_reached && u.added_bytes > at * sizeof(float)))
            sum += u.weight * static_cast<double>(published_.at(u.version)[at]), weight += u.weight;
        float got;
        std::memcpy(&got, d.address(i) + k * sizeof(float), sizeof got);
        if (got != static_cast<float>(sum / weight)) return false;
      }
    return true;
  }

  tp::testing::virtual_clock clock_;
  tp::testing::seeded_random random_;
  bool forged_;
  averaging_report report_;
  test::model result_;
  tp::chunk_buffers buffers_;
  Average average_;
  std::map<std::uint64_t, std::vector<float>> published_;  // by version
  std::map<std::uint64_t, counted> truth_;  // by peer, of the current round
  std::vector<peer> peers_;
  std::vector<std::unique_ptr<attempt>> attempts_;
  std::array<std::uint64_t, 1024> scratch_{};
};

}  // namespace tests
