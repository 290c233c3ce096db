// A pull that is proved, from several sources at once, driven in hand: over lines that are lost and come back.
#pragma once

#include "satellites/parallel/random_lies.hpp"

#include <tensorpull/satellites/parallel/checked_transfer.hpp>
#include <tensorpull/satellites/proofs/proved.hpp>

#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace test::driven {

constexpr tp::ref_id id{1, 2};

inline tp::proof proof_of(const model& m, unsigned level) {
  const tp::source_view image = m.source();
  std::vector<tp::blake3_value> values;
  const auto root = tp::proof_tree::make(image)->root();
  const std::uint64_t groups = tp::groups_of(image.schema->image_bytes, level);
  for (std::uint64_t i = 0; i < groups && groups > 1; ++i) {
    tp::detail::group_hash<> hash((i << level) / 1024);
    const std::uint64_t at = i << level;
    EXPECT_TRUE(tp::hash_range(hash, image, at, std::min(std::uint64_t{1} << level, image.schema->image_bytes - at)));
    values.push_back(hash.chaining_value());
  }
  return *tp::proof::make(root, image.schema->image_bytes, level, values);
}
inline std::uint64_t offset_of(const byte_vector& f) {
  return tp::detail::payload_prefix::read(std::span<const std::byte, 80>(f.data(), 80))->offset;
}

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

/// The pull, driven as parallel_pull.hpp drives it. `lies`: of each source; nothing: it is honest.
template <class Consumer, class Chunking = tp::fixed_bytes<65'536>, class Plan = tp::every_source>
struct pulled {
  std::optional<tp::result<tp::receipt>> done;
  std::uint8_t wrong = 0;
  std::uint64_t turns = 0;
  std::vector<std::uint64_t> carried;  // bytes from each source

  pulled(Consumer& to, const model& published, std::vector<tampering> lies, const lines_of& how, std::uint64_t seed)
      : carried(lies.size()) {
    generator r(seed);
    const tp::pull_request request{.ref = id, .version = version_of(published), .recipient = {9}};
    tp::checked_transfer<Consumer, Chunking, tp::default_limits, Plan> t(to, request, {}, 1);
    std::deque<line> all(how.count);
    for (std::uint64_t i = 0; i < how.count; ++i) {
      all[i].source = i % lies.size();
      t.coming(static_cast<std::uint8_t>(i), true);
    }
    tp::no_transfer idle;
    tp::error last{tp::errc::connection_failed};
    std::uint64_t patience = 20, slowness = 800, began = 0, began_with = 0;
    std::uint8_t hurried = 0xff;
    for (std::uint64_t over = 0; turns < 100'000 && !t.ended(); ++turns) {
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
        const std::uint64_t before = l.to->to_right.carried, before_landed = t.landed_bytes();
        auto role = t.line_of(n);
        l.to->pump(idle, role);
        carried[l.source] += l.to->to_right.carried - before;
        const bool moved = l.to->to_right.carried != before || t.landed_bytes() != before_landed;
        l.quiet = moved ? 0 : l.quiet + 1;
        const auto why = t.line_ended(n);
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
        l.idle = t.idles(n) ? l.idle + 1 : 0;
        if (l.idle >= std::uint64_t{50} << t.repeats() && t.take_over(n, [](auto...) { return true; })) l.idle = 0;
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
    if (t.ended()) done = t.outcome();
    wrong = t.wrong();
  }
};

}  // namespace test::driven
