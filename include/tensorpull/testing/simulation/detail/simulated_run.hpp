// One run of a simulation: its processes and connections, who is woken when, and what the oracles say.
#pragma once

#include <tensorpull/testing/simulation/scenario.hpp>
#include <tensorpull/testing/simulation/detail/simulated_owner.hpp>
#include <tensorpull/testing/simulation/detail/simulated_recipient.hpp>
#include <tensorpull/testing/simulation/simulation_report.hpp>
#include <tensorpull/testing/simulation/detail/step_trace.hpp>

#include <array>
#include <memory>
#include <utility>
#include <vector>

namespace tensorpull::testing {

/// A part of simulated_network, which says what the parameters are.
template <class Net, consumer Consumer, simulated_model Model>
class simulated_run {
 protected:
  using parts = typename Net::parts;
  struct judgement {
    simulated_run* net;
    std::uint32_t who;
    void operator()(const receipt& r, const source_view& where) const { net->judge(who, r, where, true); }
  };
  using owner_type = simulated_owner<parts, Model>;
  using recipient_type = simulated_recipient<parts, Consumer, Model, judgement>;

  enum class kind : std::uint8_t { wake, begin, tick, fault, heal, start_owner, start_recipient, give_buffers, go_on, publish };
  struct event {
    kind what;
    std::uint32_t who = 0, side = 0;
  };

  simulated_run(std::uint64_t seed, const simulation_options& options)
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
  simulated_run(const simulated_run&) = delete;
  simulated_run& operator=(const simulated_run&) = delete;

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

  // Who is woken when.
  void wake_at(std::uint32_t id, std::size_t side, std::uint64_t at) {
    if (at >= connections_[id].wake_at[side]) return;
    connections_[id].wake_at[side] = at;
    queue_.at(at, {kind::wake, id, static_cast<std::uint32_t>(side)});
  }
  /// Who has something to do because of what just moved.
  void after(std::uint32_t id, std::size_t side, const pumped& did, bool closed) {
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

  void drop(recipient_type& r) {
    const auto id = r.connection_id();
    r.disconnect();
    after(id, 1, {}, true);
  }


  // What the oracles say.
  /// What a receipt claims about a destination. `finishing`: asked by the consumer's finish(), before the owner is told.
  void judge(std::uint32_t who, const receipt& r, const source_view& where, bool finishing) {
    const bool equal = oracle_.equal(r.version, where, recipients_[who].part()), certain = r.outcome == outcome::completed;
    if (certain && !equal) fail(report_.false_completions, "completed, and the bytes are others");
    if (!certain && !equal && !finishing) fail(report_.unverified_wrong, "completed_unverified, and the bytes are others");
    if (finishing && certain && equal) settlements_.holds(r.version, states_[who].number);
  }

  /// The owner has not counted more than there was, and what has settled is not served.
  void audit() {
    if (const char* const wrong = settlements_.audit(owner_.status())) fail(report_.false_counts, wrong);
  }
  /// After each step of the owner.
  void drain() {
    owner_.drain([this](const settlement& s, bool ended) {
      note("settles", s.id.number, static_cast<std::uint64_t>(s.verdict), s.counts.completed);
      ++report_.settled[static_cast<std::size_t>(s.verdict)];
      if (const char* const wrong = settlements_.told(owner_.starts(), s)) fail(report_.false_settlements, wrong);
      if (ended) queue_.after(1 + random_.below(clock_.now() >= plan_.healed_us ? 1'000 : 60'000), {kind::publish, owner_.starts()});
    });
  }
  /// For whom something is published. After the last fault: with budgets that everybody can keep.
  expectation draw_expectation() {
    expectation e;
    e.forgetful = small_;
    const bool healed = clock_.now() >= plan_.healed_us;
    // a table that is too small for those who are expected keeps others waiting as long as they do not come
    if (!plan_.options.transactions || (small_ && healed)) return e;
    const std::uint64_t how = random_.below(10);
    if (how < 3) e.counted = static_cast<std::uint32_t>(1 + random_.below(recipients_.size()));
    if (how >= 3 && how < 7) {
      for (const recipient_process& r : states_)
        if (r.stable && r.named && random_.chance(800)) e.named.push_back({r.number});
      if (random_.chance(150)) e.named.push_back({random_() | 1});  // who never comes
    }
    const std::uint64_t expected = e.named.empty() ? e.counted : e.named.size();
    if (random_.chance(300)) e.least = static_cast<std::uint32_t>(1 + random_.below(expected + 1));
    const auto budget = [&](std::uint32_t often, std::uint64_t ms) { return std::chrono::milliseconds(random_.chance(often) ? 1 + random_.below(ms) + (healed ? 5'000 : 0) : 0); };
    e.budgets.acquire = budget(300, 300);
    e.budgets.recipient_idle = budget(500, 800);
    e.budgets.transaction_idle = budget(300, 800);
    return e;
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
  settlement_oracle settlements_;
  bool small_ = false;  // the owner's table
  std::size_t waiting_ = 0;
  simulation_report report_;
};

}  // namespace tensorpull::testing
