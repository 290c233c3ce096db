// Two recipients that pull two references of an owner over streams, as a world to explore: the faults of connections
// and of programs, a stranger, and bytes that lie.
#pragma once

#include "explored/host_programs.hpp"

#include <memory>

namespace test::hosts {

class host_world final : public host_programs {
  static constexpr unsigned lies = 10;
  static constexpr std::uint32_t ticks[] = {2'000, 4'500, 9'000};

 public:
  host_world(const setting& s, const faults& f) : host_programs(s, f) {
    record();
    begin();
    first_ = state;
  }

  void steps(std::vector<std::uint32_t>& to) {
    const auto can = [&](step s, unsigned i = 0, unsigned how = 0) { to.push_back(s << 24 | i << 16 | how); };
    const faults& f = state.left;
    for (unsigned i = 0; i < 2; ++i) {
      const one_recipient& r = at(i);
      if (r.end == none && r.pulls < 2) can(reconnect, i);
      if (r.ghost != none) {
        if (r.late_size > 0) can(arrive_late, i);
        can(notice, i);
      }
      if (r.end != none) {
        for (const bool down : {false, true}) {
          can(down ? answer : ask, i);
          if (f.splits > 0)
            for (unsigned how = 1; how <= 4; ++how) can(down ? answer : ask, i, how);
          if (i != 0 || (down ? f.lies_down : f.lies_up) == 0) continue;
          for (unsigned w = 0; w < 44; ++w)
            for (unsigned how = 0; how < lies; ++how) can(down ? lie_down : lie_up, i, w << 4 | how);
          for (unsigned k = 0; k < 20; ++k) can(down ? lie_down : lie_up, i, another_kind + k);
        }
        if (r.pulls < 2 && tr(i).pause().count() > 0) can(wake, i);
        if (f.breaks > 0 && r.ghost == none) can(lose, i), can(lose, i, 1);
        if (f.withdrawals > 0)
          for (unsigned ref = 0; ref < 2; ++ref)
            if (state.published[ref]) can(withdraw_while_sent, i, ref);
        if (f.same > 0)
          for (unsigned ref = 0; ref < 2; ++ref)
            if (state.published[ref]) can(publish_while_sent, i, ref);
      }
      if (r.pulls < 2) {
        if (f.give_ups > 0) can(give_up, i);
        if (f.recipient_restarts > 0 && r.ghost == none) can(restart_recipient, i), can(restart_recipient, i, 1);
      }
    }
    for (unsigned ref = 0; ref < 2; ++ref) {
      if (f.same > 0 && state.published[ref]) can(publish_same, ref);
      if (f.other > 0 && !state.ended) can(publish_other, ref);
      if (f.withdrawals > 0 && state.published[ref]) can(withdraw, ref);
    }
    if (f.withdrawals > 0) can(withdraw_all), can(end_owner);
    if (f.owner_restarts > 0) can(restart_owner);
    for (unsigned how = 0; f.ticks > 0 && how < std::size(ticks); ++how) can(tick, how);
    if (state.stranger_end != none) can(stranger_leaves);
    for (unsigned k = 0; f.strangers > 0 && k < asked_.size(); ++k)
      for (unsigned how = 0; how < 3; ++how) can(strange, how, k);
    if (f.strangers > 0) can(strange_long);
  }

  bool take(std::uint32_t s) {
    const unsigned i = s >> 16 & 0xff, how = s & 0xffff;
    faults& f = state.left;
    switch (static_cast<step>(s >> 24)) {
      case ask:
        if (how > 0) --f.splits;
        if (!up(i, how)) return false;
        break;
      case answer:
        if (how > 0) --f.splits;
        if (!down(i, how)) return false;
        break;
      case lie_up:
        --f.lies_up;
        if (!up(i, 0, &how)) return false;
        break;
      case lie_down:
        --f.lies_down;
        if (!down(i, 0, &how)) return false;
        break;
      case reconnect: connect(i); break;
      case arrive_late: late(i); break;
      case notice: close(std::exchange(at(i).ghost, none)), at(i).late_size = 0, blank(at(i).late); break;
      case wake: tr(i).restart(); break;
      case lose: --f.breaks, break_up(i, how != 0); break;
      case withdraw_while_sent: --f.withdrawals; return while_sent(i, how, &host_world::take_away);
      case publish_while_sent: --f.same; return while_sent(i, how, &host_world::publish_the_same);
      case give_up:
        --f.give_ups;
        at(i).gave_up[at(i).pulls] = true;
        tr(i).give_reason(cancelled_because);
        tr(i).fail({errc::cancelled});
        poll(i);
        break;
      case restart_recipient: --f.recipient_restarts, start_again(i, how != 0); break;
      case publish_same: --f.same, publish_again(i, false); break;
      case publish_other: --f.other, publish_again(i, true); break;
      case withdraw: --f.withdrawals, take_away(i); break;
      case withdraw_all:
        --f.withdrawals;
        for (unsigned ref = 0; ref < 2; ++ref)
          if (state.published[ref]) take_away(ref);
        break;
      case end_owner: --f.withdrawals, owner_ends(); break;
      case restart_owner: --f.owner_restarts, owner_starts_again(); break;
      case tick: --f.ticks, pass_time(ticks[i]); break;
      case stranger_leaves: close(std::exchange(state.stranger_end, none)); break;
      case strange: --f.strangers, strangely(i, how); break;
      case strange_long: --f.strangers, strangely_long(); break;
    }
    look();
    return true;
  }

  /// All that can be done without a fault, in some order.
  bool rest() {
    const bool more = rest_once();
    if (more) look();
    return more;
  }
  std::string tell(std::uint32_t s) {
    const unsigned i = s >> 16 & 0xff, how = s & 0xffff;
    const std::string who = std::to_string(i + 1), ref = i == 0 ? "A" : "B", other = how == 0 ? "A" : "B";
    const auto moved = [&](const char* what) {
      const auto now = std::make_unique<machines>(state);
      const char* const was = std::exchange(wrong, nullptr);
      said_.clear(), telling_ = true;
      (void)take(s);
      telling_ = false;
      std::memcpy(static_cast<void*>(&state), now.get(), sizeof state);
      wrong = was;
      return what + said_;
    };
    switch (static_cast<step>(s >> 24)) {
      case ask: return moved(how > 0 ? "a part of " : "") + " from recipient " + who;
      case answer: return moved(how > 0 ? "a part of " : "") + " to recipient " + who;
      case lie_up: return "spoilt (word " + std::to_string(how >> 4) + "): " + moved("") + " from recipient " + who;
      case lie_down: return "spoilt (word " + std::to_string(how >> 4) + "): " + moved("") + " to recipient " + who;
      case reconnect: return "recipient " + who + " connects";
      case arrive_late: return "the owner reads what recipient " + who + " sent over the old connection";
      case notice: return "the owner notices that recipient " + who + "'s old connection is gone";
      case wake: return "recipient " + who + " has waited";
      case lose: return "recipient " + who + "'s connection breaks" + (how != 0 ? ", what it sent arrives later" : "");
      case withdraw_while_sent: return "the owner withdraws " + other + " while it sends " + moved("") + " to " + who;
      case publish_while_sent:
        return "the owner publishes " + other + " again while it sends " + moved("") + " to " + who;
      case give_up: return "recipient " + who + " gives up";
      case restart_recipient: return "recipient " + who + " starts again" + (how != 0 ? " with its cursor" : "");
      case publish_same: return "the same is published again as " + ref;
      case publish_other: return "something else is published as " + ref;
      case withdraw: return "the owner withdraws " + ref;
      case withdraw_all: return "the owner withdraws both";
      case end_owner: return "the owner's program withdraws all and ends (29)";
      case restart_owner: return "the owner starts again";
      case tick: return std::to_string(ticks[i]) + " ms pass";
      case stranger_leaves: return "the stranger's connection ends";
      case strange: return "from a stranger: " + tell_datagram(strange_frame(how, i));
      case strange_long: return "from a stranger: the beginning of a long frame";
    }
    return "?";
  }
  std::string tell_rest() {
    const auto now = std::make_unique<machines>(state);
    const char* const was = std::exchange(wrong, nullptr);
    said_.clear(), telling_ = true;
    const bool more = rest_once();
    telling_ = false;
    std::memcpy(static_cast<void*>(&state), now.get(), sizeof state);
    wrong = was;
    if (more) return said_.empty() ? "a step without bytes" : said_;
    return tell_end();
  }

 private:
  enum step : std::uint32_t {
    ask,
    answer,
    lie_up,
    lie_down,
    reconnect,
    arrive_late,
    notice,
    wake,
    lose,
    withdraw_while_sent,
    publish_while_sent,
    give_up,
    restart_recipient,
    publish_same,
    publish_other,
    withdraw,
    withdraw_all,
    end_owner,
    restart_owner,
    tick,
    stranger_leaves,
    strange,
    strange_long
  };

  void hear_stranger(const_byte_span bytes) noexcept {
    if (state.stranger_end == none) state.stranger_end = static_cast<std::uint8_t>(accept(stranger));
    if (!give_owner(state.stranger_end, bytes, stranger)) close(std::exchange(state.stranger_end, none));
    else into_nothing(state.stranger_end);
  }
  void strangely(unsigned how, unsigned k) {
    const byte_vector d = strange_frame(k, how);
    lies_as(d, stranger);
    hear_stranger(d);
  }
  /// The beginning of a frame that needs a buffer: then there is none.
  void strangely_long() noexcept {
    std::byte d[560] = {};
    d[4] = std::byte{70};
    hear_stranger(d);
  }
  /// A whole run without a fault, of which the requests are kept, and what else could be said instead of a
  /// confirmation.
  void record() {
    const faults allowed = std::exchange(allowed_, {});
    begin();
    recording_ = true;
    while (wrong == nullptr && rest_once()) look();
    recording_ = false;
    add_other_confirmations();
    allowed_ = allowed;
  }

  bool rest_once() {
    for (unsigned i = 0; i < 2; ++i)
      if (one_recipient& r = at(i); r.ghost != none) {
        if (r.late_size > 0) late(i);
        else close(std::exchange(r.ghost, none));
        return true;
      }
    if (state.stranger_end != none) {
      close(std::exchange(state.stranger_end, none));
      return true;
    }
    for (unsigned i = 0; i < 2; ++i)
      if (at(i).end == none && at(i).pulls < 2) {
        connect(i);
        return true;
      }
    for (unsigned i = 0; i < 2; ++i)
      if (at(i).end != none && (up(i, 0) || (at(i).end != none && down(i, 0)))) return true;
    for (unsigned i = 0; i < 2; ++i)
      if (at(i).end != none) {
        wait(i);
        return true;
      }
    for (const one_transaction& t : state.transactions)
      if (t.there && !t.told) {
        pass_time(transaction_idle_ms + 1);
        return true;
      }
    return false;
  }
  /// Nothing moves, and a recipient is connected: its program waits as long as the owner asks, or else tries another
  /// connection, a few times.
  void wait(unsigned i) {
    if (at(i).pulls == 2) return hang_up(i);
    const bool busy = tr(i).pause().count() > 0;
    if (++at(i).tries > 8) tr(i).fail({busy ? errc::busy : errc::timed_out}), poll(i);
    else if (busy) tr(i).restart();
    else hang_up(i);
  }
};

}  // namespace test::hosts
