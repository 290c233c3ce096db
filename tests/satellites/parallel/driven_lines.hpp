// A pull from several sources at once, driven in hand as parallel_wire.hpp drives it: over lines that are lost and come
// back.
#pragma once

#include "random_lies.hpp"

#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace test::driven {

constexpr tp::ref_id id{1, 2};

/// One line to a source. A driver tries five times without a word that is new.
struct line {
  std::unique_ptr<pair> to;
  std::uint64_t quiet = 0, idle = 0, at = 0, source = 0;
  int tries = 0;
  bool over = false;
};
/// How the lines of a pull are.
struct lines_of {
  std::uint64_t count = 0, piece = 16 * 1024, losses = 0;  // losses: one in so many turns; 0: none
};

/// Until it ends, or never does. `lies`: of each source; nothing: it is honest. `carried`: bytes from each source.
/// `left_out`: why the last line to an honest source was ended, if one was. Returns the turns.
template <class Transfer>
std::uint64_t drive(Transfer& t, const model& published, std::vector<tampering> lies, const lines_of& how, generator& r,
                    std::vector<std::uint64_t>* carried = nullptr, tp::optional<tp::error>* left_out = nullptr) {
  std::uint64_t turns = 0;
  std::deque<line> all(how.count);
  for (std::uint64_t i = 0; i < how.count; ++i) {
    all[i].source = i % lies.size();
    t.coming(static_cast<std::uint8_t>(i), true);
  }
  tp::no_transfer idle;
  tp::error last{tp::errc::connection_failed};
  std::uint64_t patience = 20, slowness = 800, began = 0, began_with = 0;
  std::uint8_t hurried = 0xff;
  for (std::uint64_t over = 0; turns < 200'000 && !t.ended(); ++turns) {
    for (std::uint8_t n = 0; n < how.count && !t.ended(); ++n) {
      line& l = all[n];
      if (l.over || (!l.to && turns < l.at)) continue;
      if (!l.to) {
        l.to = std::make_unique<pair>(cut{static_cast<std::size_t>(how.piece)});
        l.to->left.publish(published, id);
        if (lies[l.source]) l.to->owner_lies = [&lie = lies[l.source]](byte_vector& f) { lie(f); };
        l.to->right.end.begin_pull();
        t.up(n, static_cast<std::uint8_t>(l.source), l.to->right.end.next_id());
        l.quiet = 0;
      }
      if (how.losses != 0 && r.below(3) == 0) continue;  // lines are not as fast as each other
      const std::uint64_t before = l.to->to_right.carried, before_landed = t.landed_bytes();
      auto role = t.line_of(n);
      l.to->pump(idle, role);
      if (carried != nullptr) (*carried)[l.source] += l.to->to_right.carried - before;
      const bool moved = l.to->to_right.carried != before || t.landed_bytes() != before_landed;
      l.quiet = moved ? 0 : l.quiet + 1;
      const auto why = t.line_ended(n);
      if (why && !lies[l.source] && left_out != nullptr) *left_out = why;
      const bool lost = how.losses != 0 && r.below(how.losses) == 0;
      if ((why || lost || l.to->right_error || l.to->left_error) && !t.ended()) {
        if (why) last = *why;
        t.lost(n);
        l.to.reset();
        if (lost && !why && !lies[l.source]) l.tries = 0;
        l.over = why || ++l.tries == 5;
        l.at = turns + 5 + r.below(20);
        over += l.over;
        t.coming(n, !l.over);
        continue;
      }
      if constexpr (requires { t.repeats(); }) {
        l.idle = t.idles(n) ? l.idle + 1 : 0;
        if (l.idle >= std::uint64_t{50} << t.repeats() && t.take_over(n, [](auto...) { return true; })) l.idle = 0;
      }
      if (n != t.first_line() && t.line_pause(n).count() > 0 && r.below(3) == 0) t.resume_line(n);
      if (n != t.first_line() && t.first_line() < t.most_lines) continue;
      if (n == t.first_line() && t.awaits(n) && l.quiet >= patience && t.replace_first())
        patience = std::min<std::uint64_t>(2 * patience, 1200);
      const bool is_another = t.first_line() < t.most_lines && hurried != t.first_line();
      if (!t.waits_for_first() || is_another || t.landed_bytes() >= began_with + 65'536) {
        if (is_another) hurried = t.first_line();
        began_with = t.landed_bytes();
        began = turns;
      }
      if (turns - began >= slowness && t.replace_first()) slowness *= 2;
    }
    if (over == how.count && !t.ended()) t.fail(last);
  }
  return turns;
}

}  // namespace test::driven
