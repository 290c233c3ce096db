// One owner and up to 64 recipients in virtual time, and everything that can go wrong between them, drawn from one seed. The same seed gives
// the same run, on every machine: nothing depends on the wall clock, on threads or on addresses.
#pragma once

#include <tensorpull/consumers/land.hpp>
#include <tensorpull/pipeline.hpp>
#include <tensorpull/testing/simulation/detail/simulated_cohort.hpp>
#include <tensorpull/transports/stream/session.hpp>

namespace tensorpull::testing {

/// Policy for the transport slot of pipelines that are simulated.
struct simulated {
  using is_transport_policy = void;
  using stream = simulated_stream;
  static constexpr std::uint64_t max_payload_bytes = tensorpull::max_payload_bytes;
  static constexpr std::size_t connection_bytes = 0;
  template <class Parts>
  using downloader = publisher<Parts>;
  template <class Parts>
  using session = tensorpull::session<Parts, simulated_stream>;
};

/// `Net`: a pipeline; its chunking, integrity, framing and limits are used. `Consumer`: constructed from a destination_view.
/// `Model`: what is published and landed in (guarded_tensors, guarded_object<raw_tensors<Mlp>>, or the user's own).
template <class Net, consumer Consumer = land, simulated_model Model = guarded_tensors>
class simulated_network : simulated_cohort<Net, Consumer, Model> {
  using base = simulated_cohort<Net, Consumer, Model>;
  using typename base::event;
  using typename base::kind;
  using typename base::recipient_type;
  using base::after, base::clock_, base::connections_, base::note, base::owner_, base::plan_, base::queue_, base::random_, base::recipients_, base::report_, base::settlements_, base::small_;

 public:
  simulated_network(std::uint64_t seed, const simulation_options& options) : base(seed, options) {}

  simulation_report run() {
    start_owner(false);
    for (std::uint32_t i = 0; i < plan_.recipients; ++i) queue_.at(random_.below(20'000), {kind::begin, i});
    for (std::uint32_t i = 0; i < plan_.faults.size(); ++i) queue_.at(plan_.faults[i].at_us, {kind::fault, i});
    queue_.at(plan_.healed_us, {kind::heal});
    queue_.after(base::tick_us, {kind::tick});
    while (this->waiting_ > 0) {
      const auto e = queue_.pop();
      if (!e || clock_.now() > plan_.healed_us + plan_.options.give_up_us) {
        this->fail(report_.stuck, "somebody has not completed");
        break;
      }
      handle(*e);
    }
    finish();
    return report_;
  }

 private:
  void handle(const event& e) {
    switch (e.what) {
      case kind::wake: return this->wake(e.who, e.side);
      case kind::begin: return this->begin(e.who);
      case kind::tick: return this->tick();
      case kind::fault: return strike(plan_.faults[e.who]);
      case kind::heal: return heal();
      case kind::start_owner: return start_owner(e.side != 0);
      case kind::start_recipient: return start_recipient(e.who);
      case kind::give_buffers: return give_buffers();
      case kind::go_on: return this->go_on(e.who, e.side);
      case kind::publish: return owner_.up() && owner_.starts() == e.who && !owner_.published() ? publish_again() : void();
    }
  }

  void give_buffers() {
    if (!owner_.up()) return;
    owner_.take_buffers(false);
    for (std::uint32_t id = 0; id < connections_.size(); ++id) this->wake_at(id, 0, clock_.now());
  }
  void strike(const planned_fault& f) {
    const auto i = static_cast<std::uint32_t>(f.who % recipients_.size());
    note(fault_names[static_cast<std::size_t>(f.what)], i, f.detail);
    if (f.what <= fault::lose) return strike_connection(f, recipients_[i]);
    if (f.what == fault::crash_recipient) return crash_recipient(i, f.detail);
    if (!owner_.up()) return;
    switch (f.what) {
      case fault::crash_owner: return crash_owner(f.detail);
      case fault::publish_again: return publish_again();
      case fault::withdraw: return owner_.withdraw(), this->drain();
      case fault::mutate: return owner_.published() ? owner_.mutate() : void();
      case fault::take_buffers: return owner_.take_buffers(true), queue_.after(f.detail % 200'000, {kind::give_buffers});
      default: return;
    }
  }
  void strike_connection(const planned_fault& f, recipient_type& r) {
    if (!r.connected()) return;
    const auto id = r.connection_id();
    simulated_link& link = *connections_[id].link;
    const std::size_t side = f.detail / 7 % 2;
    switch (f.what) {
      case fault::reset: link.reset(); break;
      case fault::stall: link.from(side).stall(f.detail % 600'000); break;
      case fault::cut: link.from(side).cut_after(f.detail % 700); break;
      case fault::lose: link.lose(); break;
      default: break;
    }
    this->wake_at(id, 0, clock_.now() + 1);
    this->wake_at(id, 1, clock_.now() + 1);
  }

  /// `detail` odd: the machine loses its power, and the peers are not told.
  void crash_recipient(std::uint32_t i, std::uint64_t detail) {
    recipient_type& r = recipients_[i];
    if (!r.up()) return;
    const bool connected = r.connected();
    const auto id = r.connection_id();
    if (connected && detail % 2 != 0) connections_[id].link->lose();
    if (!r.model().guards_intact()) this->fail(report_.guard_violations, "bytes outside the destination");
    const bool kept = detail / 2 % 3 == 0 && r.stop_and_keep(detail / 6 % 3 == 0 ? detail : 0);
    if (!kept) r.stop();
    if (connected) after(id, 1, {}, true);
    queue_.after(1 + detail % 300'000, {kind::start_recipient, i});
  }
  void start_recipient(std::uint32_t i) {
    note("recipient starts", i);
    this->start(i);
    queue_.after(1, {kind::begin, i});
  }
  void crash_owner(std::uint64_t detail) {
    this->audit();
    for (std::uint32_t id = 0; id < connections_.size(); ++id) {
      if (!connections_[id].owner_end) continue;
      if (detail % 2 != 0) connections_[id].link->lose();
      this->close_owner_end(id, "owner crashes");
    }
    owner_.stop();
    queue_.after(1 + detail % 300'000, {kind::start_owner, 0, detail % 3 == 0 ? 1u : 0u});
  }
  /// `again`: what it published before is lost, and it has something newer.
  void start_owner(bool again) {
    small_ = plan_.options.transactions && random_.chance(100);
    owner_.start(clock_.now(), small_ ? static_cast<std::size_t>(2 + random_.below(6)) : ~std::size_t{0});
    publish(again);
  }
  void publish_again() {
    this->audit();
    publish(true);
  }
  void publish(bool other) {
    const expectation e = this->draw_expectation();
    const auto version = other ? owner_.publish_again(e, settlements_) : owner_.publish(e, settlements_);
    note("owner publishes", e.named.empty() ? e.counted : e.named.size(), version, e.least);
    this->drain();
  }
  /// From now on nothing goes wrong any more, so everybody has to complete.
  void heal() {
    note("healed", 0);
    if (!owner_.up()) return;  // it starts within the longest outage, with what it has
    give_buffers();
    if (!owner_.published() || owner_.mutated() || small_) publish_again();
  }

  void finish() {
    for (recipient_type& r : recipients_) {
      if (r.up() && !r.model().guards_intact()) this->fail(report_.guard_violations, "bytes outside the destination");
      r.stop();
    }
    for (auto& c : connections_) {
      for (std::size_t side = 0; side < 2; ++side) report_.frame_faults += c.link->from(side).faults.happened();
      c.owner_end.reset();
    }
    if (owner_.up()) {
      owner_.take_buffers(false);
      this->audit();
      owner_.withdraw();
      this->drain();
      if (const char* const wrong = settlements_.at_end(owner_.starts())) this->fail(report_.false_settlements, wrong);
      if (!owner_.at_rest()) this->fail(report_.leaks, "a buffer, a pin or a record was not given back");
    }
    report_.steps = this->trace_.steps();
    report_.trace_hash = this->trace_.hash();
    report_.virtual_us = clock_.now();
  }
};

/// One run.
template <class Net, consumer Consumer = land, simulated_model Model = guarded_tensors>
simulation_report simulate(std::uint64_t seed, const simulation_options& options = {}) {
  return std::make_unique<simulated_network<Net, Consumer, Model>>(seed, options)->run();
}

}  // namespace tensorpull::testing
