// The owner of a small machine, and a host that pulls from it over a link that loses, doubles, delays and re-orders.
#pragma once

#include "embedded_owner.hpp"
#include "lossy_pair.hpp"

namespace test {

/// An owner of a small machine, an unmodified host, and the link between them. The owner speaks only when it is spoken
/// to.
template <class Owner>
struct pulled_by_a_host {
  explicit pulled_by_a_host(const link_conditions& c, std::uint64_t seed = 1)
      : link(c), right(seed + 1, c.datagram_bytes), dice(seed + 2) {}

  std::uint32_t milliseconds() const { return static_cast<std::uint32_t>(now.count() / 1000); }

  /// Runs until `done()`, or until `limit` of virtual time is over.
  template <class Transfer, class Done>
  bool run(Transfer& t, Done done, microseconds limit = 5min) {
    for (const microseconds end = now + limit; !done() && now < end;) {
      for (tp::datagram_plan plan;;) {
        right.end->plan_datagram(t, plan, right.room(), now);
        if (plan.bytes == 0) break;
        const datagram d = datagram_of(bytes_of(plan));
        right.end->sent(t, plan, true);
        up.put(d, plan.bytes, link, dice, now);
      }
      microseconds wake = std::min(up.next_time(), down.next_time());
      if (const microseconds wait = right.end->next_time(t, now); wait != microseconds::max())
        wake = std::min(wake, now + wait);
      if (wake == microseconds::max()) return done();
      spins_ = wake <= now ? spins_ + 1 : 0;
      if (spins_ == 100'000) {
        ADD_FAILURE() << "it spins";
        return false;
      }
      now = std::max(wake, now);
      while (up.next(now, [&](const_byte_span d) {
        const auto bytes = answer_of(owner, d, milliseconds());
        if (!image.empty()) read_answers(bytes, image);
        if (!bytes.empty()) down.put(datagram_of(bytes), bytes.size(), link, dice, now);
        if (after_answer) after_answer();
      })) {
      }
      while (down.next(now, [&](const_byte_span d) {
        if (const auto ok = right.end->received(t, d, now); !ok) ++not_understood, last_error = ok.error().code;
      })) {
      }
    }
    return done();
  }
  /// Pulls to the end, with a farewell.
  template <class Transfer>
  tp::result<tp::receipt> pull(Transfer& t) {
    t.fits(link.datagram_bytes);
    right.end->begin_pull();
    while (run(t, [&] { return t.ended() || t.pause().count() > 0; }) && !t.ended()) now += t.pause(), t.restart();
    if (!t.ended()) return tp::failure(errc::timed_out);
    right.end->end_pull(t);
    tp::no_transfer idle;
    if (const auto farewell = t.farewell(); farewell && right.end->send_control(*farewell))
      run(idle, [&] { return right.end->output_idle(); });
    run(idle, [] { return false; }, 1s);
    return t.outcome();
  }

  link_conditions link;
  Owner owner;
  datagram_party<> right;
  generator dice;
  lossy_line up, down;
  microseconds now{1'000'000};
  byte_vector image;  // of what is published, to compare every answer with; empty: do not
  std::function<void()> after_answer;  // called when a datagram was answered
  std::uint64_t not_understood = 0;
  errc last_error{};

 private:
  std::uint64_t spins_ = 0;
};

}  // namespace test
