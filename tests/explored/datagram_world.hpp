// Two recipients that pull two references of an owner over datagrams, as a world to explore: the faults of links and of
// programs, a stranger, and datagrams that lie.
#pragma once

#include "explored/datagram_programs.hpp"

#include <memory>

namespace test::hosts {

template <class How>
class datagram_world final : public datagram_programs<How> {
  using base = datagram_programs<How>;
  using base::accept, base::add_other_confirmations, base::allowed_, base::ask, base::asked_, base::at, base::blank,
      base::close, base::confirmed_in, base::content_of, base::datagrams_, base::end_ghost, base::first_,
      base::given_up, base::heard_by, base::is_here, base::landed_in, base::lies_as, base::look, base::meanwhile_,
      base::most_damaged, base::move, base::must, base::next_time, base::none, base::number_of, base::on_the_way,
      base::pass, base::poll, base::publish_again, base::pump, base::recorded_down_, base::recording_, base::rend,
      base::say, base::scan, base::spoil, base::start_again, base::strange_frame, base::stranger, base::take_away,
      base::tell_end, base::telling_, base::to_owner, base::to_recipient, base::tr, base::transaction_idle_ms,
      base::version, base::wants_order, base::owner_ends, base::owner_starts_again, base::another_kind,
      base::cancelled_because;
  using typename base::machines;
  using typename base::meanwhile;
  using typename base::one_recipient;
  using typename base::time;
  static constexpr unsigned lies = 10, most_silent = 12;
  static constexpr tp::status refusals[] = {tp::status::withdrawn, tp::status::stale, tp::status::busy};
  static constexpr std::uint32_t ticks[] = {2'000, 4'500, 9'000};

 public:
  using base::begin, base::state, base::wrong;

  datagram_world(const setting& s, const faults& f) : base(s, f) {
    record();
    begin();
    first_ = state;
  }
  void at_the_end() {
    base::at_the_end();
    for (const one_recipient& r : state.recipients)
      must(r.damages > most_damaged || r.lied_to || !has_failed(r),
           "a chunk that was damaged is not fetched again (36)");
  }

  void steps(std::vector<std::uint32_t>& to) {
    const auto can = [&](step s, unsigned i = 0, unsigned how = 0) { to.push_back(s << 24 | i << 16 | how); };
    const faults& f = state.left;
    for (unsigned i = 0; i < 2; ++i) {
      const one_recipient& r = at(i);
      for (unsigned d = 0; d < 3; ++d) {
        const std::uint32_t* const line = line_of(i, d);
        for (unsigned k = 0; k < on_the_way && line[k] != 0; ++k) {
          const unsigned which = d << 4 | k;
          if (k == 0 || f.overtakes > 0) can(arrive, i, which);
          if (f.losses > 0) can(lose, i, which);
          if (f.doubles > 0 && d < 2 && line[on_the_way - 1] == 0) can(twice, i, which);
          if (f.damages > 0 && d == 1 && holds_payload(line[k])) can(damage, i, which);
        }
        if (line[0] == 0 || i != 0 || d == 2 || (d == 1 ? f.lies_down : f.lies_up) == 0) continue;
        for (unsigned w = 0; w < 44; ++w)
          for (unsigned how = 0; how < lies; ++how) can(d == 1 ? lie_down : lie_up, i, w << 4 | how);
        for (unsigned k = 0; k < 20; ++k) can(d == 1 ? lie_down : lie_up, i, another_kind + k);
      }
      if (r.ghost != none) can(notice, i);
      if (r.end != none && (r.lives == 0 || f.forgets > 0)) can(forget, i);
      if (i == 0 && f.lies_down > 0)
        for (unsigned k = 0; k < recorded_down_.size(); ++k) can(replay, i, k);
      if (i == 0 && f.lies_down > 0 && r.pulls < 2)
        for (unsigned k = 0; k < 4; ++k)
          for (unsigned how = 0; how < std::size(refusals); ++how) can(refuse, i, k << 4 | how);
      if (r.pulls == 2) continue;
      if (tr(i).pause().count() > 0) can(wake, i);
      if (f.give_ups > 0) can(give_up, i);
      if (f.moves > 0 && !tr(i).ended()) can(change, i);
      if (f.recipient_restarts > 0)
        for (unsigned how = 0; how < 4; ++how) can(restart_recipient, i, how);
      if constexpr (wants_order) {
        if (landed_in(i).dry) can(have_memory, i);
        else if (f.splits > 0) can(have_none, i);
      }
    }
    for (unsigned ref = 0; ref < 2; ++ref) {
      if (f.same > 0 && state.published[ref]) can(publish_same, ref);
      if (f.other > 0 && !state.ended) can(publish_other, ref);
      if (f.withdrawals > 0 && state.published[ref]) can(withdraw, ref);
      for (unsigned i = 0; i < 2; ++i) {
        if (at(i).up[0] == 0 || !state.published[ref]) continue;
        if (f.withdrawals > 0) can(withdraw_while_sent, i, ref);
        if (f.same > 0) can(publish_while_sent, i, ref);
      }
    }
    if (f.withdrawals > 0) can(end_owner);
    if (is_open()) can(join);
    if (f.owner_restarts > 0) can(restart_owner);
    for (unsigned how = 0; f.ticks > 0 && how < std::size(ticks); ++how) can(tick, how);
    if (const time wait = next_time(); wait != time::max() && wait.count() > 0 && (f.early > 0 || is_silent()))
      can(timer);
    if (state.stranger_end != none) can(stranger_leaves);
    for (unsigned k = 0; f.strangers > 0 && k < asked_.size(); ++k)
      for (unsigned how = 0; how < 3; ++how) can(strange, how, k);
  }

  bool take(std::uint32_t s) {
    const unsigned i = s >> 16 & 0xff, how = s & 0xffff, k = how & 15, d = how >> 4;
    faults& f = state.left;
    switch (static_cast<step>(s >> 24)) {
      case arrive:
        if (k > 0) --f.overtakes;
        deliver_to(i, d, dequeue<on_the_way>(line_of(i, d), k));
        break;
      case lose: --f.losses, (void)dequeue<on_the_way>(line_of(i, d), k); break;
      case twice: --f.doubles, enqueue<on_the_way>(line_of(i, d), line_of(i, d)[k]); break;
      case damage: {
        --f.damages;
        if (++at(i).damages > most_damaged) at(i).lied_to = true;
        byte_vector spoilt = datagrams_[dequeue<on_the_way>(line_of(i, d), k)];
        spoilt[payload_at(spoilt)] ^= std::byte{4};
        if (!base::checks_chunks) at(i).lied_to = true;
        to_recipient(i, spoilt, true);
        break;
      }
      case lie_up:
        --f.lies_up;
        if (!lie(0, how)) return false;
        break;
      case lie_down:
        --f.lies_down;
        if (!lie(1, how)) return false;
        break;
      case replay:
        --f.lies_down;
        at(i).lied_to = true;
        to_recipient(i, datagrams_[recorded_down_[how]], true);
        break;
      case refuse:
        --f.lies_down;
        at(i).lied_to = true;
        to_recipient(i, refusal(how), true);
        break;
      case notice: end_ghost(i); break;
      case forget:
        if (at(i).lives != 0) --f.forgets;
        close(std::exchange(at(i).end, none));
        break;
      case wake: tr(i).restart(), given_up(i); break;
      case give_up:
        --f.give_ups;
        at(i).gave_up[at(i).pulls] = true;
        tr(i).give_reason(cancelled_because);
        tr(i).fail({errc::cancelled});
        break;
      case change: --f.moves, move(i); break;
      case restart_recipient: --f.recipient_restarts, start_again(i, (how & 1) != 0, (how & 2) != 0); break;
      case have_none:
      case have_memory:
        if constexpr (wants_order) landed_in(i).dry = !landed_in(i).dry;
        if (s >> 24 == have_none) --f.splits;
        break;
      case publish_same: --f.same, publish_again(i, false); break;
      case publish_other: --f.other, publish_again(i, true); break;
      case withdraw: --f.withdrawals, take_away(i); break;
      case withdraw_while_sent: --f.withdrawals; return while_sent(i, how, meanwhile::step::withdraws);
      case publish_while_sent: --f.same; return while_sent(i, how, meanwhile::step::publishes);
      case end_owner: --f.withdrawals, owner_ends(); break;
      case join: base::join(); break;
      case restart_owner: --f.owner_restarts, owner_starts_again(); break;
      case tick: --f.ticks, pass(1'000ull * ticks[i]); break;
      case timer:
        if (!is_silent()) --f.early;
        pass_to_timer();
        break;
      case stranger_leaves: close(std::exchange(state.stranger_end, none)); break;
      case strange: --f.strangers, strangely(i, how); break;
    }
    pump();
    look();
    return true;
  }

  /// All that can be done without a fault, in some order.
  bool rest() {
    if (!rest_once()) return false;
    pump();
    look();
    return true;
  }
  std::string tell(std::uint32_t s) {
    const unsigned i = s >> 16 & 0xff, how = s & 0xffff;
    const std::string who = std::to_string(i + 1), ref = i == 0 ? "A" : "B", other = how == 0 ? "A" : "B";
    const auto told = [&](const char* what) {
      const unsigned d = how >> 4;
      const std::uint32_t number = line_of(i, d)[how & 15];
      static constexpr const char* where[] = {"from", "to", "from the former link of"};
      return std::string(what) + where[d] + " recipient " + who + ": " + tell_datagram(datagrams_[number]);
    };
    const auto lied = [&](unsigned d) {
      byte_vector spoilt = datagrams_[line_of(0, d)[0]];
      std::size_t n = spoilt.size();
      spoilt.resize(2 * n);
      (void)spoil(spoilt.data(), n, how);
      return "spoilt (word " + std::to_string(how >> 4) + ") " + (d == 1 ? "to" : "from") +
             " recipient 1: " + tell_datagram(const_byte_span(spoilt).first(n));
    };
    switch (static_cast<step>(s >> 24)) {
      case arrive: return told((how & 15) != 0 ? "early, " : "");
      case lose: return told("lost, ");
      case twice: return told("doubled, ");
      case damage: return told("damaged, ");
      case lie_up: return lied(0);
      case lie_down: return lied(1);
      case replay: return "of another run, to recipient 1: " + tell_datagram(datagrams_[recorded_down_[how]]);
      case refuse: return "nobody's, to recipient 1: " + tell_datagram(refusal(how));
      case notice: return "the owner forgets the former link of recipient " + who;
      case forget: return "the owner forgets recipient " + who + "'s link";
      case wake: return "recipient " + who + " has waited";
      case give_up: return "recipient " + who + " gives up";
      case change: return "recipient " + who + " goes on over another link";
      case restart_recipient:
        return "recipient " + who + " starts again" + ((how & 1) != 0 ? " with its cursor" : "") +
               ((how & 2) != 0 ? ", over another link" : "");
      case have_none: return "recipient " + who + "'s consumer has no memory";
      case have_memory: return "recipient " + who + "'s consumer has memory again";
      case publish_same: return "the same is published again as " + ref;
      case publish_other: return "something else is published as " + ref;
      case withdraw: return "the owner withdraws " + ref;
      case withdraw_while_sent: return "the owner withdraws " + other + " while it answers recipient " + who;
      case publish_while_sent: return "the owner publishes " + other + " again while it answers recipient " + who;
      case end_owner: return "the owner's program withdraws all and ends (29)";
      case join: return "B joins the transaction";
      case restart_owner: return "the owner starts again";
      case tick: return std::to_string(ticks[i]) + " ms pass";
      case timer: return std::to_string(next_time().count()) + " us pass, until a timer";
      case stranger_leaves: return "the owner forgets the stranger";
      case strange: return "from a stranger: " + tell_datagram(strange_frame(how, i));
    }
    return "?";
  }
  std::string tell_rest() {
    for (unsigned i = 0; i < 2; ++i)
      for (const unsigned d : {2u, 0u, 1u})
        if (line_of(i, d)[0] != 0) return tell(arrive << 24 | i << 16 | d << 4);
    for (unsigned i = 0; i < 2; ++i)
      if (is_here(i)) return "it waits";
    return tell_end();
  }

 private:
  enum step : std::uint32_t {
    arrive,
    lose,
    twice,
    damage,
    lie_up,
    lie_down,
    replay,
    refuse,
    notice,
    forget,
    wake,
    give_up,
    change,
    restart_recipient,
    have_none,
    have_memory,
    publish_same,
    publish_other,
    withdraw,
    withdraw_while_sent,
    publish_while_sent,
    end_owner,
    join,
    restart_owner,
    tick,
    timer,
    stranger_leaves,
    strange
  };

  /// Lines: 0 to the owner, 1 from it, 2 to it from the address that the recipient had before.
  std::uint32_t* line_of(unsigned i, unsigned d) noexcept {
    if (d == 2) return at(i).ghost_up;
    return d == 0 ? at(i).up : at(i).down;
  }
  bool is_silent() noexcept {
    for (unsigned i = 0; i < 2; ++i)
      for (unsigned d = 0; d < 3; ++d)
        if (line_of(i, d)[0] != 0) return false;
    return true;
  }
  static std::size_t payload_at(const_byte_span d) {
    std::size_t at = 0;
    each_frame(d, [&](const read_frame& f) {
      if (at == 0 && f.m.kind == tp::frame_kind::chunk) at = static_cast<std::size_t>(f.payload.data() - d.data());
    });
    return at;
  }
  bool holds_payload(std::uint32_t number) const { return payload_at(datagrams_[number]) != 0; }
  static bool has_failed(const one_recipient& r) noexcept {
    for (const auto& d : r.done)
      if (d.over && d.code == errc::chunk_digest_mismatch) return true;
    return false;
  }

  void deliver_to(unsigned i, unsigned d, std::uint32_t number) {
    one_recipient& r = at(i);
    const byte_vector bytes = datagrams_[number];
    if (d == 1) return to_recipient(i, bytes, r.lied_to);
    if (d == 0) return to_owner(r.end, i, i, bytes, r.down);
    if (r.ghost == none) return;
    const unsigned ref = confirmed_in(bytes, i);
    to_owner(r.ghost, i, i, bytes, nullptr);
    if (ref == none) return;
    scan();
    must((state.recorded[i][ref] & content_of(ref, version(ref))) != 0,
         "what is confirmed over the former link does not count (24)");
  }
  bool lie(unsigned d, unsigned how) {
    byte_vector spoilt = datagrams_[dequeue<on_the_way>(line_of(0, d), 0)];
    std::size_t n = spoilt.size();
    spoilt.resize(2 * n);
    if (!spoil(spoilt.data(), n, how)) return false;
    spoilt.resize(n);
    if (d == 1) {
      at(0).lied_to = true;
      to_recipient(0, spoilt, true);
      return true;
    }
    lies_as(spoilt, 0), at(0).lied = true;
    to_owner(at(0).end, 0, 0, spoilt, at(0).down);
    return true;
  }
  /// A refusal of one of the last pulls.
  byte_vector refusal(unsigned how) {
    tp::frame m;
    m.kind = tp::frame_kind::refused;
    m.id = at(0).last_pull - (how >> 4);
    m.ref = base::refs[at(0).pulls];
    m.status = refusals[how & 15];
    byte_vector d(256);
    d.resize(*base::framing::encode(m, d));
    return d;
  }
  void strangely(unsigned how, unsigned k) {
    const byte_vector d = strange_frame(k, how);
    lies_as(d, stranger);
    to_owner(state.stranger_end, stranger, stranger, d, nullptr);
  }
  bool while_sent(unsigned i, unsigned ref, typename meanwhile::step what) {
    meanwhile_ = {what, ref};
    deliver_to(i, 0, dequeue<on_the_way>(at(i).up, 0));
    if (std::exchange(meanwhile_, {}).what != meanwhile::step::nothing) return false;
    pump();
    look();
    return true;
  }
  void pass_to_timer() {
    const time wait = next_time();
    if (wait != time::max()) pass(static_cast<std::uint64_t>(wait.count()));
  }

  void record() {
    const faults allowed = std::exchange(allowed_, {});
    begin();
    recording_ = true;
    int steps = 0;
    do {
      for (const std::uint32_t number : at(0).down)
        if (number != 0 && (recorded_down_.empty() || recorded_down_.back() < number)) recorded_down_.push_back(number);
    } while (wrong == nullptr && ++steps < 1'000 && rest());
    recording_ = false;
    add_other_confirmations();
    allowed_ = allowed;
  }

  bool is_open() const noexcept {
    for (const auto& t : state.transactions)
      if (t.there && t.open && !t.told) return true;
    return false;
  }

  bool rest_once() {
    if (is_open()) {
      base::join();
      return true;
    }
    for (unsigned i = 0; i < 2; ++i) {
      if (at(i).ghost == none) continue;
      if (at(i).ghost_up[0] != 0) deliver_to(i, 2, dequeue<on_the_way>(at(i).ghost_up, 0));
      else end_ghost(i);
      return true;
    }
    if (state.stranger_end != none) {
      close(std::exchange(state.stranger_end, none));
      return true;
    }
    for (unsigned i = 0; i < 2; ++i) {
      if constexpr (wants_order)
        if (at(i).pulls < 2 && landed_in(i).dry) {
          landed_in(i).dry = false;
          return true;
        }
      for (unsigned d = 0; d < 2; ++d)
        if (line_of(i, d)[0] != 0) {
          deliver_to(i, d, dequeue<on_the_way>(line_of(i, d), 0));
          return true;
        }
    }
    for (unsigned i = 0; i < 2; ++i)
      if (!is_here(i) && at(i).end != none) {
        close(std::exchange(at(i).end, none));
        return true;
      }
    for (unsigned i = 0; i < 2; ++i)
      if (at(i).pulls < 2 && tr(i).pause().count() > 0) {
        if (++at(i).tries > 8) {
          tr(i).fail({errc::busy});
        } else {
          pass(1'000ull * static_cast<std::uint64_t>(tr(i).pause().count()));
          tr(i).restart();
          given_up(i);
        }
        return true;
      }
    const time wait = next_time();
    if (wait != time::max()) {
      for (unsigned i = 0; i < 2; ++i)  // a digest that has to wait for its budget is no silence (6)
        if (at(i).end == none || !this->end(at(i).end).awaits_time()) ++at(i).silent;
      pass(std::max<std::uint64_t>(static_cast<std::uint64_t>(wait.count()), 1));
    }
    for (unsigned i = 0; i < 2; ++i)
      if (at(i).pulls < 2 && (wait == time::max() || at(i).silent > most_silent)) {
        must(at(i).lied_to || at(i).lied, "it waits, and nobody will answer (41, 45)");
        at(i).silent = 0;
        if (++at(i).tries > 2) tr(i).fail({errc::timed_out});
        else move(i);
        return true;
      }
    if (wait != time::max()) return true;
    for (const auto& t : state.transactions)
      if (t.there && !t.told) {
        pass(1'000ull * (transaction_idle_ms + 1));
        return true;
      }
    return false;
  }
};

}  // namespace test::hosts
