// One owner and up to 64 recipients in virtual time, with faults that are drawn from a seed. The same seed gives the
// same run on every machine: nothing depends on the wall clock, on threads or on addresses.
#pragma once

#include <tensorpull/consumers/land.hpp>
#include <tensorpull/pipeline.hpp>
#include <tensorpull/satellites/simulation/detail/scenario.hpp>
#include <tensorpull/satellites/simulation/detail/simulated_owner.hpp>
#include <tensorpull/satellites/simulation/detail/simulated_recipient.hpp>
#include <tensorpull/satellites/simulation/detail/simulation_event.hpp>
#include <tensorpull/satellites/simulation/detail/step_trace.hpp>
#include <tensorpull/satellites/simulation/simulated.hpp>
#include <tensorpull/satellites/simulation/simulation_options.hpp>
#include <tensorpull/satellites/simulation/simulation_report.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

namespace tensorpull::testing {

/// One simulated run. `Net`: a pipeline, of which chunking, integrity, framing and limits are used. `Consumer`:
/// constructed from a destination_view. `Model`: what is published and landed in (guarded_tensors,
/// guarded_object<raw_tensors<Mlp>>, or a simulated_model of the user).
template <class Net, consumer Consumer = land, simulated_model Model = guarded_tensors>
class simulated_network {
 public:
  /// Draws the faults from the seed. Borrows `options.trace`.
  simulated_network(std::uint64_t seed, const simulation_options& options)
      : random_(seed), shape_(random_), plan_(options, random_.fork()), queue_(clock_), trace_(options.trace),
        owner_(shape_, random_.fork(), oracle_) {
    report_.seed = seed;
    recipients_.reserve(plan_.recipients);
    for (std::uint32_t i = 0; i < plan_.recipients; ++i) {
      recipients_.emplace_back(shape_, clock_, plan_.options.request_timeout);
      start_process(i);
    }
    states_.reserve(plan_.recipients);
    for (; waiting_ < plan_.recipients; ++waiting_) states_.emplace_back(random_);
  }
  simulated_network(const simulated_network&) = delete;
  simulated_network& operator=(const simulated_network&) = delete;

  /// Runs to the end and reports. Call it once.
  simulation_report run() {
    // a budget that is over, or a small table, may end a transfer for good
    same_content_ = !plan_.damages && !plan_.options.transactions;
    start_owner(false);
    for (std::uint32_t i = 0; i < plan_.recipients; ++i) queue_.at(random_.below(20'000), {event_kind::begin, i});
    for (std::uint32_t i = 0; i < plan_.faults.size(); ++i) queue_.at(plan_.faults[i].at_us, {event_kind::fault, i});
    queue_.at(plan_.healed_us, {event_kind::heal});
    queue_.after(tick_us, {event_kind::tick});
    while (waiting_ > 0) {
      const auto e = queue_.pop();
      if (!e || clock_.now() > plan_.healed_us + static_cast<std::uint64_t>(plan_.options.give_up.count())) {
        fail(report_.stuck, "somebody has not completed");
        break;
      }
      handle(*e);
    }
    finish();
    return report_;
  }

 private:
  using parts = typename Net::parts;
  /// Asks the oracles when a consumer has finished.
  struct finished_consumer {
    simulated_network* net;
    std::uint32_t who;
    void operator()(const receipt& r, const source_view& where) const { net->judge(who, r, where, true); }
  };
  using owner_type = detail::simulated_owner<parts, Model>;
  using recipient_type = detail::simulated_recipient<parts, Consumer, Model, finished_consumer>;

  using event_kind = detail::event_kind;
  using event = detail::simulation_event;
  /// Side 0 is the owner's.
  struct connection {
    std::shared_ptr<simulated_wire> wire;
    std::unique_ptr<typename owner_type::connection> owner_end;
    std::uint32_t recipient = 0;
    std::array<std::uint64_t, 2> wake_at{never, never};
  };
  static constexpr std::uint64_t never = ~std::uint64_t{0};
  static constexpr std::uint64_t tick_us = 50'000;

  void handle(const event& e) {
    switch (e.what) {
      case event_kind::wake: return wake(e.who, e.side);
      case event_kind::begin: return begin(e.who);
      case event_kind::tick: return tick();
      case event_kind::fault: return strike(plan_.faults[e.who]);
      case event_kind::heal: return heal();
      case event_kind::start_owner: return start_owner(e.side != 0);
      case event_kind::restart_owner: return owner_.up() && !healed() ? crash_owner(e.who, false) : void();
      case event_kind::start_recipient: return start_recipient(e.who);
      case event_kind::give_buffers: return give_buffers();
      case event_kind::go_on: return go_on(e.who, e.side);
      case event_kind::publish:
        return owner_.up() && owner_.starts() == e.who && !owner_.published() ? publish_again() : void();
    }
  }

  /// Whether the last fault has happened, and what it broke works again.
  bool healed() const noexcept { return clock_.now() >= plan_.healed_us; }

  // The trace and the report.
  void note(std::string_view what, std::uint64_t who, std::uint64_t a = 0, std::uint64_t b = 0) noexcept {
    trace_.note(clock_.now(), what, who, a, b);
  }
  void fail(std::uint64_t& counter, const char* what) noexcept {
    ++counter;
    note(what, 0);
    if (report_.first_failure == nullptr) report_.first_failure = what;
  }
  void check_guards(recipient_type& r) noexcept {
    if (!r.model().guards_intact()) fail(report_.guard_violations, "bytes outside the destination");
  }

  // Waking the ends.
  void wake_at(std::uint32_t id, std::size_t side, std::uint64_t at) {
    if (at >= connections_[id].wake_at[side]) return;
    connections_[id].wake_at[side] = at;
    queue_.at(at, {event_kind::wake, id, static_cast<std::uint32_t>(side)});
  }
  /// Wakes the ends that have something to do because of what just moved.
  void after(std::uint32_t id, std::size_t side, const pumped& did, bool closed) {
    simulated_wire& wire = *connections_[id].wire;
    const std::size_t other = 1 - side;
    if (did.received + did.sent > 0 || did.works || (did.wants_write && !did.write_blocked)) {
      note(side == 0 ? "owner moves" : "recipient moves", id, did.received, did.sent);
      wake_at(id, side, clock_.now() + 1 + random_.below(40));
    } else if (const auto at = wire.to(side).next_arrival(); at && !closed) {
      if (*at > clock_.now()) wake_at(id, side, *at);
    }
    if (did.received > 0 || closed) wake_at(id, other, clock_.now() + 1);
    if (did.sent > 0 || closed)
      if (const auto at = wire.from(side).next_arrival()) wake_at(id, other, *at);
  }

  // Connections.
  void wake(std::uint32_t id, std::size_t side) {
    if (connections_[id].wake_at[side] != clock_.now()) return;  // another call was first
    connections_[id].wake_at[side] = never;
    pump(id, side);
  }
  void pump(std::uint32_t id, std::size_t side) {
    connection& c = connections_[id];
    pumped did;
    bool closed = false;
    if (side == 0) {
      if (!c.owner_end) return;
      const auto moved = owner_.pump(*c.owner_end);
      if (plan_.options.forged) owner_.forge();
      tell_settlements();
      if (moved) did = *moved;
      else note("owner closes", id, static_cast<std::uint64_t>(moved.error().code)), c.owner_end.reset(), closed = true;
    } else {
      recipient_type& r = recipients_[c.recipient];
      if (!r.connected(id)) return;
      did = r.pump();
      closed = !r.connected(id);
      if (closed) note("connection lost", c.recipient, id);
      if (const auto why = r.obstacle()) retry_later(c.recipient, *why);
      if (r.ended()) end_transfer(c.recipient);
      else if (r.busy_until() > clock_.now()) wake_at(id, 1, r.busy_until());
    }
    after(id, side, did, closed);
  }
  void drop(recipient_type& r) {
    const auto id = r.connection_id();
    r.disconnect();
    after(id, 1, {}, true);
  }

  // Transfers.
  void begin(std::uint32_t i) {
    recipient_type& r = recipients_[i];
    if (!r.up() || r.pulling() || states_[i].done) return;
    if (!connected(i)) return queue_.after(5'000 + random_.below(20'000), {event_kind::begin, i});
    detail::recipient_process& me = states_[i];
    if (!me.stable || !me.named) me.number = random_() | 1;
    pull_request request;
    if (me.named) request.recipient = {me.number};
    request.ref = owner_type::reference;
    request.window = static_cast<std::uint32_t>(1 + random_.below(8));
    if (!healed() && random_.chance(100))
      request.version = oracle_.version(static_cast<std::size_t>(random_.below(oracle_.size())));
    detail::slowness slow;
    if (plan_.options.slow_consumers && !healed() && random_.chance(200)) slow = {200, 50'000, 1 + random_.below(500)};
    typename parts::chunking cut{};
    if constexpr (requires { cut.chunk_bytes = 1; }) cut.chunk_bytes = 1 + random_.below(900);
    const retry_policy retry{static_cast<std::uint32_t>(random_.below(5)),
                             std::chrono::milliseconds(1 + static_cast<std::int64_t>(random_.below(30))),
                             std::chrono::milliseconds(200)};
    if (!r.begin(request, cut, finished_consumer{this, i}, random_.fork(), slow, retry))
      fail(report_.contract_violations, "resumed over bytes that were changed");
    note(r.resumed() ? "resume" : "pull", i, request.version, request.window);
    if (r.resumed()) ++report_.resumed;
    wake_at(r.connection_id(), 1, clock_.now());
  }
  /// Makes a connection if there is none and the owner is up. Returns whether there is one.
  bool connected(std::uint32_t i) {
    recipient_type& r = recipients_[i];
    if (r.connected()) return true;
    if (!owner_.up()) return false;
    const auto wire = std::make_shared<simulated_wire>(clock_, plan_.conditions(healed()), random_.fork());
    if (!healed()) plan_.damage(wire->from(1), wire->from(0));
    const auto id = static_cast<std::uint32_t>(connections_.size());
    r.connect(simulated_stream(wire, 1), id);
    connections_.push_back({wire, owner_.accept(simulated_stream(wire, 0), clock_.now()), i});
    note("connect", i, id);
    return true;
  }

  /// Lets the transfer wait until it continues, on the same connection or on another one; ends it if no tries are left.
  void retry_later(std::uint32_t i, const error& why) {
    recipient_type& r = recipients_[i];
    note("hindered", i, static_cast<std::uint64_t>(why.code), r.current().landed_bytes());
    if (const auto delay = r.try_again(why, random_()))
      queue_.after(*delay * 1000 + 1, {event_kind::go_on, i, ++states_[i].tries});
    else return;
    // a network that loses everything looks like a slow owner
    if (why.code == errc::timed_out && r.connected() && random_.chance(700)) drop(r);
  }
  void go_on(std::uint32_t i, std::uint32_t number) {
    recipient_type& r = recipients_[i];
    if (!r.suspended() || states_[i].tries != number) return;
    if (!connected(i)) {
      retry_later(i, {errc::connection_lost});
      return r.ended() ? end_transfer(i) : void();
    }
    r.go_on();
    ++report_.went_on;
    note("goes on", i, r.connection_id(), r.current().landed_bytes());
    if (r.ended()) end_transfer(i);
    if (r.connected()) wake_at(r.connection_id(), 1, clock_.now() + 1);
  }

  void end_transfer(std::uint32_t i) {
    recipient_type& r = recipients_[i];
    const auto done = r.current().outcome();
    const detail::consumer_record& seen = r.consumer_of_current().seen();
    if (seen.broken_rule != nullptr) fail(report_.contract_violations, seen.broken_rule);
    if (seen.begun && !seen.finished && !seen.abandoned)
      fail(report_.contract_violations, "neither finish() nor abandon()");
    if (done && !seen.finished) fail(report_.contract_violations, "an outcome without finish()");
    check_guards(r);
    if (done) {
      note("completes", i, done->version, static_cast<std::uint64_t>(done->outcome));
      judge(i, *done, r.model().source(), false);
      ++(done->outcome == outcome::completed ? report_.completed : report_.completed_unverified);
      if (!done->confirmed) ++report_.unconfirmed;
    } else {
      note("fails", i, static_cast<std::uint64_t>(done.error().code), done.error().at);
      ++report_.failed[static_cast<std::size_t>(done.error().code) % report_.failed.size()];
    }
    const errc why = done ? done->unconfirmed_because : done.error().code;
    if (done && done->confirmed != (why == errc{}))
      fail(report_.contract_violations, "confirmed, and a reason why not, or neither");
    // an owner knows such a recipient by its connection alone, and does not take its confirmation over another
    const bool unknown = done && !states_[i].named;
    if (same_content_ && why != errc{} && !is_passing(why) && !unknown)
      fail(report_.false_failures, "failed for good, and the owner has published the same all the time");
    r.end();
    const bool enough = done && (done->outcome == outcome::completed || !parts::integrity::whole) &&
                        (healed() || random_.chance(600));
    if (enough) return void((states_[i].done = true, --waiting_));
    // either on the same connection, so that late answers may still arrive, or on another one
    if (r.connected() && random_.chance(500)) drop(r);
    queue_.after(1'000 + random_.below(30'000), {event_kind::begin, i});
  }

  // The timer.
  /// Looks at budgets only. An end that has something to do must be woken by its cause, so that a missing wake-up is
  /// found.
  void tick() {
    if (owner_.up()) {
      owner_.advance(clock_.now());
      tell_settlements();
      audit();
    }
    for (std::uint32_t id = 0; id < connections_.size(); ++id) {
      connection& c = connections_[id];
      if (c.owner_end && owner_.tick(*c.owner_end, clock_.now())) close_owner_end(id, "owner's budget is over");
      recipient_type& r = recipients_[c.recipient];
      if (!r.connected(id)) continue;
      r.tick();
      if (const auto why = r.obstacle()) retry_later(c.recipient, *why);
      if (r.ended()) end_transfer(c.recipient);
    }
    queue_.after(tick_us, {event_kind::tick});
  }
  void close_owner_end(std::uint32_t id, std::string_view why) {
    note(why, id);
    connections_[id].owner_end.reset();
    after(id, 0, {}, true);
  }

  // The faults.
  void give_buffers() {
    if (!owner_.up()) return;
    owner_.take_buffers(false);
    for (std::uint32_t id = 0; id < connections_.size(); ++id) wake_at(id, 0, clock_.now());
  }
  void strike(const detail::planned_fault& f) {
    const auto i = static_cast<std::uint32_t>(f.who % recipients_.size());
    note(fault_names[static_cast<std::size_t>(f.what)], i, f.detail);
    if (f.what <= fault::lose) return strike_connection(f, recipients_[i]);
    if (f.what == fault::crash_recipient) return crash_recipient(i, f.detail);
    if (!owner_.up()) return;
    switch (f.what) {
      case fault::crash_owner: return crash_owner(f.detail, f.detail % 3 == 0);
      case fault::publish_again: return publish_again();
      case fault::withdraw:
        same_content_ = false;
        owner_.withdraw();
        return tell_settlements();
      case fault::mutate:
        same_content_ = false;
        if (owner_.published()) owner_.mutate();
        return;
      case fault::take_buffers:
        owner_.take_buffers(true);
        return queue_.after(f.detail % 200'000, {event_kind::give_buffers});
      case fault::restart_owner:
        // half of them after somebody's last byte, about when its confirmation is on its way
        if (f.detail % 2 == 0) return crash_owner(f.detail, false);
        restart_at_finish_ = true;
        return;
      default: return;
    }
  }
  void strike_connection(const detail::planned_fault& f, recipient_type& r) {
    if (!r.connected()) return;
    const auto id = r.connection_id();
    f.strike(*connections_[id].wire);
    wake_at(id, 0, clock_.now() + 1);
    wake_at(id, 1, clock_.now() + 1);
  }

  /// `detail` odd: as if the machine lost its power: the peers are not told.
  void crash_recipient(std::uint32_t i, std::uint64_t detail) {
    recipient_type& r = recipients_[i];
    if (!r.up()) return;
    const bool connected = r.connected();
    const auto id = r.connection_id();
    if (connected && detail % 2 != 0) connections_[id].wire->lose();
    check_guards(r);
    const bool kept = detail / 2 % 3 == 0 && r.stop_and_keep(detail / 6 % 3 == 0 ? detail : 0);
    if (!kept) r.stop();
    if (connected) after(id, 1, {}, true);
    queue_.after(1 + detail % 300'000, {event_kind::start_recipient, i});
  }
  void start_recipient(std::uint32_t i) {
    note("recipient starts", i);
    start_process(i);
    queue_.after(1, {event_kind::begin, i});
  }
  /// `newer`: it starts again with other content, otherwise with the same under the same reference; its tables are
  /// empty in both cases.
  void crash_owner(std::uint64_t detail, bool newer) {
    audit();
    for (std::uint32_t id = 0; id < connections_.size(); ++id) {
      if (!connections_[id].owner_end) continue;
      if (detail % 2 != 0) connections_[id].wire->lose();
      close_owner_end(id, "owner crashes");
    }
    owner_.stop();
    queue_.after(1 + detail % 300'000, {event_kind::start_owner, 0, newer ? 1u : 0u});
  }
  /// Starts a recipient's process, which pulls everything or some of the tensors.
  void start_process(std::uint32_t i) {
    std::uint32_t wanted = ~0u;
    // the digest of a part is computed when it is requested, so a source that was changed before that cannot be
    // detected
    if constexpr (requires { shape_.tensors(); })
      if (!plan_.mutates && random_.chance(250))
        wanted = static_cast<std::uint32_t>(1 + random_.below((std::uint64_t{1} << shape_.tensors()) - 1));
    recipients_[i].start(wanted);
  }

  // Publishing.
  /// `again`: after a crash: the owner has lost what it published, and publishes something newer.
  void start_owner(bool again) {
    small_table_ = plan_.options.transactions && random_.chance(100);
    owner_.start(clock_.now(), small_table_ ? static_cast<std::size_t>(2 + random_.below(6)) : ~std::size_t{0});
    publish(again);
  }
  void publish_again() {
    audit();
    publish(true);
  }
  void publish(bool other) {
    if (other) same_content_ = false;
    detail::expectation e;
    e.forgetful = small_table_;
    // if the table is too small for more than the expected recipients, others wait until these are final
    if (plan_.options.transactions && !(small_table_ && healed())) {
      std::vector<recipient_id> stable;
      for (const detail::recipient_process& r : states_)
        if (r.stable && r.named) stable.push_back({r.number});
      e.draw(random_, stable, recipients_.size(), healed());
    }
    const auto version = other ? owner_.publish_again(e, settlements_) : owner_.publish(e, settlements_);
    note("owner publishes", e.named.empty() ? e.counted : e.named.size(), version, e.least);
    tell_settlements();
  }

  // The oracles.
  /// Checks a receipt against its destination. `finishing`: called from the consumer's finish(), before the owner is
  /// told.
  void judge(std::uint32_t who, const receipt& r, const source_view& where, bool finishing) {
    const bool equal = oracle_.equal(r.version, where, recipients_[who].part()),
               certain = r.outcome == outcome::completed;
    if (certain && !equal) fail(report_.false_completions, "completed, and the bytes are others");
    if (!certain && !equal && !finishing)
      fail(report_.unverified_wrong, "completed_unverified, and the bytes are others");
    if (finishing && certain && equal) settlements_.holds(r.version, states_[who].number);
    if (finishing && std::exchange(restart_at_finish_, false))
      queue_.after(random_.below(2'000),
                   {event_kind::restart_owner, static_cast<std::uint32_t>(random_.below(300'000))});
  }

  /// Checks that the owner has not counted too many completions, and does not serve what has settled.
  void audit() {
    if (const char* const wrong = settlements_.audit(owner_.status())) fail(report_.false_counts, wrong);
  }
  /// Called after each step of the owner.
  void tell_settlements() {
    owner_.tell_settlements([this](const settlement& s, bool ended) {
      note("settles", s.id.number, static_cast<std::uint64_t>(s.verdict), s.counts.completed);
      ++report_.settled[static_cast<std::size_t>(s.verdict)];
      same_content_ = false;  // what has settled is not served any more
      if (const char* const wrong = settlements_.told(owner_.starts(), s)) fail(report_.false_settlements, wrong);
      if (ended) queue_.after(1 + random_.below(healed() ? 1'000 : 60'000), {event_kind::publish, owner_.starts()});
    });
  }

  // The end of the run.
  /// From now on there are no faults, so every recipient must complete.
  void heal() {
    note("healed", 0);
    if (!owner_.up()) return;  // it will start again, and publish then
    give_buffers();
    if (!owner_.published() || owner_.mutated() || small_table_) publish_again();
  }

  void finish() {
    for (recipient_type& r : recipients_) {
      if (r.up()) check_guards(r);
      r.stop();
    }
    for (auto& c : connections_) {
      for (std::size_t side = 0; side < 2; ++side) report_.frame_faults += c.wire->from(side).faults.happened();
      c.owner_end.reset();
    }
    if (owner_.up()) {
      owner_.take_buffers(false);
      audit();
      owner_.withdraw();
      tell_settlements();
      if (const char* const wrong = settlements_.at_end(owner_.starts())) fail(report_.false_settlements, wrong);
      if (!owner_.at_rest()) fail(report_.leaks, "a buffer, a pin or a record was not given back");
    }
    report_.steps = trace_.steps();
    report_.trace_hash = trace_.hash();
    report_.virtual_us = clock_.now();
  }

  seeded_random random_;
  typename Model::shape shape_;
  detail::scenario plan_;
  virtual_clock clock_;
  event_queue<event> queue_;
  detail::step_trace trace_;
  detail::published_versions oracle_;
  owner_type owner_;
  std::vector<recipient_type> recipients_;
  std::vector<connection> connections_;  // before the owner's process: they point into it
  std::vector<detail::recipient_process> states_;
  detail::settlement_oracle settlements_;
  bool small_table_ = false;  // the owner's table
  bool same_content_ = true;  // nothing was damaged so far, and one content was published whenever the owner was up
  bool restart_at_finish_ = false;  // the owner restarts when the next consumer has finished
  std::size_t waiting_ = 0;
  simulation_report report_;
};

/// One run, in memory of its own.
template <class Net, consumer Consumer = land, simulated_model Model = guarded_tensors>
simulation_report simulate(std::uint64_t seed, const simulation_options& options = {}) {
  return std::make_unique<simulated_network<Net, Consumer, Model>>(seed, options)->run();
}

}  // namespace tensorpull::testing
