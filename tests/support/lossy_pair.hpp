// Two ends of a datagram connection in one process and in virtual time, and a link between them that loses, doubles,
// delays and re-orders.
#pragma once

#include "pair.hpp"
#include "tcp_flow.hpp"

#include <tensorpull/protocol/datagrams/datagram_endpoint.hpp>
#include <tensorpull/protocol/datagrams/datagram_transfer.hpp>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace test {

using std::chrono::microseconds;

/// What a link does to datagrams.
struct link_conditions {
  std::size_t datagram_bytes = 1200;
  double loss = 0, doubled = 0;
  microseconds delay{50}, jitter{0};
  double overtakes = 0;  // without the delay
};

/// Loses nothing and keeps the order.
inline constexpr link_conditions in_order{1200, 0, 0, 300us, 0us};

/// For the recipient `who`.
inline tp::pull_request request_for(tp::ref_id id, std::uint64_t who = 9) { return {.ref = id, .recipient = {who}}; }

using datagram = std::vector<std::uint64_t>;  // aligned, with zeros at its end

inline datagram datagram_of(const_byte_span bytes) {
  datagram d(bytes.size() / 8 + 1);
  if (!bytes.empty()) std::memcpy(d.data(), bytes.data(), bytes.size());
  return d;
}
/// The bytes that an endpoint sends as one datagram.
inline byte_vector bytes_of(const tp::datagram_plan& plan) {
  byte_vector all;
  for (std::size_t i = 0; i < plan.span_count; ++i) all.insert(all.end(), plan.spans[i].begin(), plan.spans[i].end());
  EXPECT_EQ(all.size(), plan.bytes);
  return all;
}

/// One direction of a link.
struct lossy_line {
  /// What IP, UDP and a frame of Ethernet add to a datagram, and what one takes at least.
  static constexpr std::size_t overhead_bytes = 48;

  bottleneck* sender = nullptr;  ///< none: it carries everything at once
  std::multimap<microseconds, std::pair<datagram, std::size_t>> on_its_way;
  std::uint64_t sent = 0, lost = 0, payload = 0;

  void put(const datagram& d, std::size_t bytes, const link_conditions& link, generator& dice, microseconds now) {
    EXPECT_LE(bytes, link.datagram_bytes);
    ++sent;
    for (int copies = dice.chance(link.doubled) ? 2 : 1; copies > 0; --copies) {
      const bool loses = dice.chance(link.loss);
      const auto leaves = sender != nullptr ? sender->departs(now, bytes + overhead_bytes) : std::optional(now);
      if (loses || !leaves) {
        ++lost;
        continue;
      }
      const auto jitter = link.jitter.count() > 0 ? dice.below(static_cast<std::uint64_t>(link.jitter.count())) : 0;
      const auto delay = dice.chance(link.overtakes) ? microseconds(0) : link.delay + microseconds(jitter);
      on_its_way.emplace(*leaves + delay, std::pair(d, bytes));
    }
  }
  microseconds next_time() const { return on_its_way.empty() ? microseconds::max() : on_its_way.begin()->first; }
  /// Calls `take(bytes)` with the next one that has come, if there is one.
  template <class Take>
  bool next(microseconds now, Take take) {
    if (next_time() > now) return false;
    const auto [d, bytes] = std::move(on_its_way.begin()->second);
    on_its_way.erase(on_its_way.begin());
    take(const_byte_span{reinterpret_cast<const std::byte*>(d.data()), bytes});
    return true;
  }
};

template <class Limits = tp::default_limits>
struct datagram_party {
  static constexpr std::size_t buffer_bytes = 66'560;
  using owner_type = tp::owner<tp::xxhash_digest, Limits>;
  using end_type = tp::datagram_endpoint<tested_framing, Limits, owner_type, inbox>;

  datagram_party(std::uint64_t seed, std::size_t datagram_bytes, std::size_t buffers = 4)
      : random(seed), references(storage, [this] { return random(); }),
        memory(new std::uint64_t[buffers * buffer_bytes / 8 + 8]),
        pool({reinterpret_cast<std::byte*>(memory.get()), buffers * buffer_bytes}, buffer_bytes),
        end(std::make_unique<end_type>(references, pool, box, datagram_bytes, random())),
        scratch(new std::uint64_t[end->scratch_bytes() / 8 + 1]) {}

  tp::ref_id publish(const model& m, tp::ref_id id = {1, 2}, std::uint32_t recipients = 0, bool verifiable = true) {
    EXPECT_TRUE(references.publish(m.source(), verifiable ? version_of(m) : 77, verifiable, id, recipients));
    return id;
  }
  byte_span room() { return {reinterpret_cast<std::byte*>(scratch.get()), end->scratch_bytes()}; }
  /// The endpoint of a process that was started anew.
  void start_again(std::size_t datagram_bytes) {
    end.reset(), end = std::make_unique<end_type>(references, pool, box, datagram_bytes, random());
  }

  generator random;
  tp::owner_storage<16, 64> storage;
  owner_type references;
  std::unique_ptr<std::uint64_t[]> memory;
  typename end_type::pool_type pool;
  inbox box;
  std::unique_ptr<end_type> end;
  std::unique_ptr<std::uint64_t[]> scratch;
};

/// Both ends and the link. `left` owns.
template <class Limits = tp::default_limits>
struct lossy_pair {
  explicit lossy_pair(const link_conditions& c, std::uint64_t seed = 1)
      : link(c), left(seed, c.datagram_bytes), right(seed + 1, c.datagram_bytes), dice(seed + 2) {}

  template <class Party, class Transfer>
  void send(Party& from, Transfer& t, lossy_line& line) {
    for (tp::datagram_plan plan;;) {
      from.end->plan_datagram(t, plan, from.room(), now);
      if (plan.bytes == 0) break;
      ASSERT_LE(plan.scratch, from.room().size());
      datagram d = datagram_of(bytes_of(plan));
      from.end->sent(t, plan, true);
      if (plan.bytes > 104) line.payload += plan.bytes;
      if (spoil) spoil(d, plan.bytes);
      line.put(d, plan.bytes, link, dice, now);
    }
  }
  template <class Party, class Transfer>
  void receive(Party& to, Transfer& t, lossy_line& line) {
    // as a driver does: what was asked is answered before more is taken
    while (!to.end->answers_wait() && line.next(now, [&](const_byte_span d) {
      const auto ok = to.end->received(t, d, now);
      if (!ok) ++not_understood, last_error = ok.error().code;
    })) {
    }
  }
  /// Runs until `done()`, or until nothing will happen any more, or `limit` of virtual time is over.
  template <class Transfer, class Done>
  bool run(Transfer& t, Done done, microseconds limit = 5min) {
    tp::no_transfer idle;
    for (const microseconds end = now + limit; !done() && now < end;) {
      send(*&right, t, up);
      send(*&left, idle, down);
      microseconds next = std::min(up.next_time(), down.next_time());
      for (const microseconds wait : {right.end->next_time(t, now), left.end->next_time(idle, now)})
        if (wait != microseconds::max()) next = std::min(next, now + wait);
      if (besides) next = std::min(next, besides(now));
      if (next == microseconds::max()) return done();
      spins_ = next <= now ? spins_ + 1 : 0;
      if (spins_ == 100'000) {
        ADD_FAILURE() << "it spins";
        return false;
      }
      now = std::max(next, now);
      left.references.advance(std::chrono::duration_cast<std::chrono::milliseconds>(now));
      receive(left, idle, up);
      receive(right, t, down);
    }
    return done();
  }
  /// Begins a pull of the right end.
  template <class Transfer>
  void begin(Transfer& t) {
    t.fits(link.datagram_bytes);
    right.end->begin_pull();
  }
  /// Runs it to its end.
  template <class Transfer>
  tp::result<tp::receipt> finish(Transfer& t) {
    if (!run(t, [&] { return t.ended(); })) return tp::failure(errc::timed_out, t.landed_bytes());
    return t.outcome();
  }
  template <class Transfer>
  tp::result<tp::receipt> pull(Transfer& t) {
    begin(t);
    return finish(t);
  }

  link_conditions link;
  datagram_party<Limits> left, right;
  generator dice;
  lossy_line up, down;
  microseconds now{1'000'000};
  std::function<void(datagram&, std::size_t)> spoil;
  std::function<microseconds(microseconds)> besides;  ///< what else happens, and when it happens next
  std::uint64_t not_understood = 0;
  errc last_error{};

 private:
  std::uint64_t spins_ = 0;
};

}  // namespace test
