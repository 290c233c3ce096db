// What the processes of one run do: connections, transfers that go on, the clock's tick: everything but what goes wrong.
#pragma once

#include <tensorpull/testing/simulation/detail/simulated_run.hpp>

namespace tensorpull::testing {

/// A part of simulated_network, which says what the parameters are.
template <class Net, consumer Consumer, simulated_model Model>
class simulated_cohort : protected simulated_run<Net, Consumer, Model> {
  using base = simulated_run<Net, Consumer, Model>;

 protected:
  using base::after, base::audit, base::clock_, base::connections_, base::drain, base::drop, base::fail, base::never, base::note, base::oracle_, base::owner_, base::plan_, base::queue_,
      base::random_, base::recipients_, base::report_, base::states_, base::tick_us, base::waiting_, base::wake_at;
  using typename base::connection, typename base::event, typename base::judgement, typename base::kind, typename base::owner_type, typename base::parts, typename base::recipient_process,
      typename base::recipient_type;
  using base::base;

  // Connections.
  void wake(std::uint32_t id, std::size_t side) {
    if (connections_[id].wake_at[side] != clock_.now()) return;  // another call came first
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
      drain();
      if (moved) did = *moved;
      else note("owner closes", id, static_cast<std::uint64_t>(moved.error().code)), c.owner_end.reset(), closed = true;
    } else {
      recipient_type& r = recipients_[c.recipient];
      if (!r.connected(id)) return;
      did = r.pump();
      closed = !r.connected(id);
      if (closed) note("connection lost", c.recipient, id);
      if (const auto why = r.obstacle()) hinder(c.recipient, *why);
      if (r.ended()) settle(c.recipient);
      else if (r.busy_until() > clock_.now()) wake_at(id, 1, r.busy_until());
    }
    after(id, side, did, closed);
  }
  // Transfers.
  void begin(std::uint32_t i) {
    recipient_type& r = recipients_[i];
    if (!r.up() || r.pulling() || states_[i].done) return;
    if (!connected(i)) return queue_.after(5'000 + random_.below(20'000), {kind::begin, i});
    const bool healed = clock_.now() >= plan_.healed_us;
    recipient_process& me = states_[i];
    if (!me.stable || !me.named) me.number = random_() | 1;
    pull_request request;
    if (me.named) request.recipient = {me.number};
    request.ref = owner_type::reference;
    request.window = static_cast<std::uint32_t>(1 + random_.below(8));
    if (!healed && random_.chance(100)) request.version = oracle_.version(static_cast<std::size_t>(random_.below(oracle_.size())));
    slowness slow;
    if (plan_.options.slow_consumers && !healed && random_.chance(200)) slow = {200, 50'000, 1 + random_.below(500)};
    typename parts::chunking cut{};
    if constexpr (requires { cut.chunk_bytes = 1; }) cut.chunk_bytes = 1 + random_.below(900);
    const retry_policy retry{static_cast<std::uint32_t>(random_.below(5)), std::chrono::milliseconds(1 + static_cast<std::int64_t>(random_.below(30))), std::chrono::milliseconds(200)};
    if (!r.begin(request, cut, judgement{this, i}, random_.fork(), slow, retry)) fail(report_.contract_violations, "resumed over bytes that were changed");
    note(r.resumed() ? "resume" : "pull", i, request.version, request.window);
    if (r.resumed()) ++report_.resumed;
    wake_at(r.connection_id(), 1, clock_.now());
  }
  /// Whether there is a connection now: a new one where there was none and the owner is up.
  bool connected(std::uint32_t i) {
    recipient_type& r = recipients_[i];
    if (r.connected()) return true;
    if (!owner_.up()) return false;
    const bool healed = clock_.now() >= plan_.healed_us;
    const auto link = std::make_shared<simulated_link>(clock_, plan_.conditions(healed), random_.fork());
    if (!healed) plan_.damage(link->from(1), link->from(0));
    const auto id = static_cast<std::uint32_t>(connections_.size());
    r.connect(simulated_stream(link, 1), id);
    connections_.push_back({link, owner_.accept(simulated_stream(link, 0), clock_.now()), i});
    note("connect", i, id);
    return true;
  }

  /// The transfer waits, and goes on on the same connection or on another one; or it has had its tries.
  void hinder(std::uint32_t i, const error& why) {
    recipient_type& r = recipients_[i];
    note("hindered", i, static_cast<std::uint64_t>(why.code), r.current().landed_bytes());
    if (const auto delay = r.try_again(why, random_())) queue_.after(*delay * 1000 + 1, {kind::go_on, i, ++states_[i].tries});
    else return;
    // a network that swallows everything looks like a slow owner
    if (why.code == errc::timed_out && r.connected() && random_.chance(700)) drop(r);
  }
  void go_on(std::uint32_t i, std::uint32_t number) {
    recipient_type& r = recipients_[i];
    if (!r.suspended() || states_[i].tries != number) return;
    if (!connected(i)) {
      hinder(i, {errc::connection_lost, 0, 0, {}});
      return r.ended() ? settle(i) : void();
    }
    r.go_on();
    ++report_.went_on;
    note("goes on", i, r.connection_id(), r.current().landed_bytes());
    if (r.ended()) settle(i);
    if (r.connected()) wake_at(r.connection_id(), 1, clock_.now() + 1);
  }

  void settle(std::uint32_t i) {
    recipient_type& r = recipients_[i];
    const auto done = r.current().outcome();
    const consumer_record& seen = r.consumer_of_current().seen();
    if (seen.broken_rule != nullptr) fail(report_.contract_violations, seen.broken_rule);
    if (seen.begun && !seen.finished && !seen.abandoned) fail(report_.contract_violations, "neither finish() nor abandon()");
    if (done && !seen.finished) fail(report_.contract_violations, "an outcome without finish()");
    if (!r.model().guards_intact()) fail(report_.guard_violations, "bytes outside the destination");
    if (done) {
      note("completes", i, done->version, static_cast<std::uint64_t>(done->outcome));
      this->judge(i, *done, r.model().source(), false);
      ++(done->outcome == outcome::completed ? report_.completed : report_.completed_unverified);
    } else {
      note("fails", i, static_cast<std::uint64_t>(done.error().code), done.error().at);
      ++report_.failed[static_cast<std::size_t>(done.error().code) % report_.failed.size()];
    }
    r.end();
    const bool enough = done && (done->outcome == outcome::completed || !parts::integrity::whole) && (clock_.now() >= plan_.healed_us || random_.chance(600));
    if (enough) return void((states_[i].done = true, --waiting_));
    // on the same connection, where late answers may still come, or on another one
    if (r.connected() && random_.chance(500)) drop(r);
    queue_.after(1'000 + random_.below(30'000), {kind::begin, i});
  }
  /// Looks at budgets only: whoever has something to do is woken by what gave it to do, so that a wake-up that is missing is seen.
  void tick() {
    if (owner_.up()) {
      owner_.advance(clock_.now());
      drain();
      audit();
    }
    for (std::uint32_t id = 0; id < connections_.size(); ++id) {
      connection& c = connections_[id];
      if (c.owner_end && owner_.tick(*c.owner_end, clock_.now())) close_owner_end(id, "owner's budget is over");
      recipient_type& r = recipients_[c.recipient];
      if (!r.connected(id)) continue;
      r.tick();
      if (const auto why = r.obstacle()) hinder(c.recipient, *why);
      if (r.ended()) settle(c.recipient);
    }
    queue_.after(tick_us, {kind::tick});
  }
  void close_owner_end(std::uint32_t id, std::string_view why) {
    note(why, id);
    connections_[id].owner_end.reset();
    after(id, 0, {}, true);
  }
};

}  // namespace tensorpull::testing
