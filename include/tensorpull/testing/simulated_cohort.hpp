// The owner and the recipients of one run, the connections between them, and who is woken when: everything but what goes wrong.
#pragma once

#include <tensorpull/testing/scenario.hpp>
#include <tensorpull/testing/simulated_owner.hpp>
#include <tensorpull/testing/simulated_recipient.hpp>
#include <tensorpull/testing/simulation_report.hpp>
#include <tensorpull/testing/step_trace.hpp>

#include <array>
#include <memory>
#include <utility>
#include <vector>

namespace tensorpull::testing {

/// A part of simulated_network, which says what the parameters are.
template <class Net, consumer Consumer, simulated_model Model>
class simulated_cohort {
 protected:
  using parts = typename Net::parts;
  struct verdict {
    simulated_cohort* net;
    std::uint32_t who;
    void operator()(const receipt& r, const source_view& where) const { net->judge(who, r, where, true); }
  };
  using owner_type = simulated_owner<parts, Model>;
  using recipient_type = simulated_recipient<parts, Consumer, Model, verdict>;

  enum class kind : std::uint8_t { wake, begin, tick, fault, heal, start_owner, start_recipient, give_buffers, go_on };
  struct event {
    kind what;
    std::uint32_t who = 0, side = 0;
  };

  simulated_cohort(std::uint64_t seed, const simulation_options& options)
      : random_(seed), shape_(random_), plan_(options, random_.fork()), queue_(clock_), trace_(options.trace), owner_(shape_, random_.fork(), oracle_) {
    report_.seed = seed;
    recipients_.reserve(plan_.recipients);
    for (std::uint32_t i = 0; i < plan_.recipients; ++i) {
      recipients_.emplace_back(shape_, clock_, plan_.options.request_timeout_us);
      start(i);
    }
    states_.resize(plan_.recipients);
    for (recipient_process& s : states_) {
      const std::uint64_t how = random_.below(10);
      s.stable = how < 7;
      s.named = how < 9;
      s.number = random_() | 1;  // far apart: a single bit that is flipped makes nobody somebody else
    }
    waiting_ = plan_.recipients;
  }
  simulated_cohort(const simulated_cohort&) = delete;
  simulated_cohort& operator=(const simulated_cohort&) = delete;

  struct recipient_process {
    bool done = false;
    bool stable = true;         ///< it has the same number in all its pulls
    bool named = true;          ///< it says who it is at all
    std::uint64_t number = 0;   ///< of the current pull
    std::uint32_t tries = 0;    ///< tells the delays apart that belong to transfers that have ended since
  };
  /// Side 0 is the owner's.
  struct connection {
    std::shared_ptr<simulated_link> link;
    std::unique_ptr<typename owner_type::connection> owner_end;
    std::uint32_t recipient = 0;
    std::array<std::uint64_t, 2> wake_at{never, never};
  };
  static constexpr std::uint64_t never = ~std::uint64_t{0};
  static constexpr std::uint64_t tick_us = 50'000;

  void note(std::string_view what, std::uint64_t who, std::uint64_t a = 0, std::uint64_t b = 0) noexcept { trace_.note(clock_.now(), what, who, a, b); }
  void fail(std::uint64_t& counter, const char* what) noexcept {
    ++counter;
    note(what, 0);
    if (report_.first_failure == nullptr) report_.first_failure = what;
  }

  void start(std::uint32_t i) {
    std::uint32_t wanted = ~0u;
    // the digest of a part is computed when it is asked for: a source that was changed before cannot be told from one that was not
    if constexpr (requires { shape_.tensors(); })
      if (!plan_.mutates && random_.chance(250)) wanted = static_cast<std::uint32_t>(1 + random_.below((std::uint64_t{1} << shape_.tensors()) - 1));
    recipients_[i].start(wanted);
  }

  // Connections.
  void wake_at(std::uint32_t id, std::size_t side, std::uint64_t at) {
    if (at >= connections_[id].wake_at[side]) return;
    connections_[id].wake_at[side] = at;
    queue_.at(at, {kind::wake, id, static_cast<std::uint32_t>(side)});
  }
  void wake(std::uint32_t id, std::size_t side) {
    if (connections_[id].wake_at[side] != clock_.now()) return;  // another call came first
    connections_[id].wake_at[side] = never;
    pump(id, side);
  }
  void pump(std::uint32_t id, std::size_t side) {
    connection& c = connections_[id];
    detail::pumped did;
    bool closed = false;
    if (side == 0) {
      if (!c.owner_end) return;
      const auto moved = owner_.pump(*c.owner_end);
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
  /// Who has something to do because of what just moved.
  void after(std::uint32_t id, std::size_t side, const detail::pumped& did, bool closed) {
    simulated_link& link = *connections_[id].link;
    const std::size_t other = 1 - side;
    if (did.received + did.sent > 0) {
      note(side == 0 ? "owner moves" : "recipient moves", id, did.received, did.sent);
      wake_at(id, side, clock_.now() + 1 + random_.below(40));
    } else if (const auto at = link.to(side).next_arrival(); at && !closed) {
      if (*at > clock_.now()) wake_at(id, side, *at);
    }
    if (did.received > 0 || closed) wake_at(id, other, clock_.now() + 1);
    if (did.sent > 0 || closed)
      if (const auto at = link.from(side).next_arrival()) wake_at(id, other, *at);
  }

  // Transfers.
  void begin(std::uint32_t i) {
    recipient_type& r = recipients_[i];
    if (!r.up() || r.pulling() || states_[i].done) return;
    if (!connected(i)) return queue_.after(5'000 + random_.below(20'000), {kind::begin, i});
    const bool healed = clock_.now() >= plan_.healed_us;
    recipient_process& me = states_[i];
    if (!me.stable) me.number = random_() | 1;
    pull_request request;
    if (me.named) request.recipient = {me.number};
    request.ref = owner_type::reference;
    request.window = static_cast<std::uint32_t>(1 + random_.below(8));
    if (!healed && random_.chance(100)) request.version = oracle_.version(static_cast<std::size_t>(random_.below(oracle_.size())));
    slowness slow;
    if (plan_.options.slow_consumers && !healed && random_.chance(200)) slow = {200, 50'000, 1 + random_.below(500)};
    typename parts::chunking cut{};
    if constexpr (requires { cut.chunk_bytes = 1; }) cut.chunk_bytes = 1 + random_.below(900);
    const retry_policy retry{static_cast<std::uint32_t>(random_.below(5)), 1 + static_cast<std::uint32_t>(random_.below(30)), 200};
    if (!r.begin(request, cut, verdict{this, i}, random_.fork(), slow, retry)) fail(report_.contract_violations, "resumed over bytes that were changed");
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

  /// What a receipt claims about a destination. `finishing`: asked by the consumer's finish(), before the owner is told.
  void judge(std::uint32_t who, const receipt& r, const source_view& where, bool finishing) {
    const bool equal = oracle_.equal(r.version, where, recipients_[who].part()), certain = r.outcome == outcome::completed;
    if (certain && !equal) fail(report_.false_completions, "completed, and the bytes are others");
    if (!certain && !equal && !finishing) fail(report_.unverified_wrong, "completed_unverified, and the bytes are others");
    if (finishing && certain && equal) count(r.version);
  }
  void count(std::uint64_t version) {
    for (auto& f : finished_)
      if (f.first == version) return void(++f.second);
    finished_.push_back({version, 1});
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
      judge(i, *done, r.model().source(), false);
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
  void drop(recipient_type& r) {
    const auto id = r.connection_id();
    r.disconnect();
    after(id, 1, {}, true);
  }

  /// Between two publications, and at the end: the owner has not counted more than there was.
  void audit(std::uint64_t version) {
    std::uint64_t there = 0;
    for (const auto& f : finished_)
      if (f.first == version) there = f.second;
    if (owner_.status().completed > there) fail(report_.false_counts, "the owner counts more completions than there were");
  }
  /// Looks at budgets only: whoever has something to do is woken by what gave it to do, so that a wake-up that is missing is seen.
  void tick() {
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

  seeded_random random_;
  typename Model::shape shape_;
  scenario plan_;
  virtual_clock clock_;
  event_queue<event> queue_;
  step_trace trace_;
  published_versions oracle_;
  owner_type owner_;
  std::vector<recipient_type> recipients_;
  std::vector<connection> connections_;  // before the owner's process: they point into it
  std::vector<recipient_process> states_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> finished_;  // completions by version
  std::size_t waiting_ = 0;
  simulation_report report_;
};

}  // namespace tensorpull::testing
