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

  bool chance(double p) { return static_cast<double>(dice() >> 11) * 0x1p-53 < p; }
  void put(lossy_line& line, const datagram& d, std::size_t bytes) {
    EXPECT_LE(bytes, link.datagram_bytes);
    ++line.sent;
    for (int copies = chance(link.doubled) ? 2 : 1; copies > 0; --copies)
      if (chance(link.loss)) ++line.lost;
      else
        line.on_its_way.emplace(
            now + link.delay +
                microseconds(link.jitter.count() > 0 ? dice() % static_cast<std::uint64_t>(link.jitter.count()) : 0),
            std::pair(d, bytes));
  }
  static bool next(lossy_line& line, microseconds now, std::pair<datagram, std::size_t>& out) {
    if (line.on_its_way.empty() || line.on_its_way.begin()->first > now) return false;
    out = std::move(line.on_its_way.begin()->second);
    line.on_its_way.erase(line.on_its_way.begin());
    return true;
  }
  std::uint32_t milliseconds() const { return static_cast<std::uint32_t>(now.count() / 1000); }

  /// Runs until `done()`, or until `limit` of virtual time is over.
  template <class Transfer, class Done>
  bool run(Transfer& t, Done done, microseconds limit = 5min) {
    for (const microseconds end = now + limit; !done() && now < end;) {
      for (tp::datagram_plan plan;;) {
        right.end->plan_datagram(t, plan, right.room(), now);
        if (plan.bytes == 0) break;
        datagram d(plan.bytes / 8 + 1);
        std::size_t at = 0;
        for (std::size_t i = 0; i < plan.span_count; at += plan.spans[i++].size())
          std::memcpy(reinterpret_cast<std::byte*>(d.data()) + at, plan.spans[i].data(), plan.spans[i].size());
        right.end->sent(t, plan, true);
        put(up, d, plan.bytes);
      }
      microseconds wake = microseconds::max();
      for (const lossy_line* l : {&up, &down})
        if (!l->on_its_way.empty()) wake = std::min(wake, l->on_its_way.begin()->first);
      if (const microseconds wait = right.end->next_time(t, now); wait != microseconds::max())
        wake = std::min(wake, now + wait);
      if (wake == microseconds::max()) return done();
      spins_ = wake <= now ? spins_ + 1 : 0;
      if (spins_ == 100'000) {
        ADD_FAILURE() << "it spins";
        return false;
      }
      now = std::max(wake, now);
      for (std::pair<datagram, std::size_t> d; next(up, now, d);) {
        if (before_answer) before_answer();
        const auto bytes = answer_of(owner, {reinterpret_cast<const std::byte*>(d.first.data()), d.second},
                                     milliseconds());
        if (!image.empty()) read_answers(bytes, image);
        datagram answer(bytes.size() / 8 + 1);
        if (!bytes.empty()) std::memcpy(answer.data(), bytes.data(), bytes.size()), put(down, answer, bytes.size());
        if (after_answer) after_answer();
      }
      for (std::pair<datagram, std::size_t> d; next(down, now, d);)
        if (const auto ok = right.end->received(t, {reinterpret_cast<const std::byte*>(d.first.data()), d.second}, now);
            !ok)
          ++not_understood, last_error = ok.error().code;
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
  std::function<void()> before_answer, after_answer;  // called when a datagram has come, and when it was answered
  std::uint64_t not_understood = 0;
  errc last_error{};

 private:
  std::uint64_t spins_ = 0;
};

}  // namespace test
