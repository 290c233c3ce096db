// Several sources of which some lie now and then, over lines that are lost and come back, by random schedules: a pull
// of a version that was given completes if one of them is honest, and names no honest one.
#include "random_lies.hpp"

#include <tensorpull/consumers/any_schema/new_model.hpp>
#include <tensorpull/satellites/parallel/parallel_transfer.hpp>

#include <deque>

namespace random_liars_test {

using namespace test;

constexpr tp::ref_id id{1, 2};

model blank_model(std::uint64_t kind) {
  model m;
  if (kind == 0) m.add("a", tp::dtype::f32, {60 * 1024}).add("b", tp::dtype::f32, {70 * 1024});
  else if (kind == 1) m.add("a", tp::dtype::u8, {3});
  else if (kind == 2) m.add("a", tp::dtype::f32, {300 * 1024}).add("z", tp::dtype::f32, {0});
  else
    for (int i = 0; i < 300; ++i)
      m.add("a long name, for a header of many chunks " + std::to_string(i), tp::dtype::f32, {100});
  m.ready();
  return m;
}

/// One line to a source. A driver tries five times without a word that is new.
struct line {
  std::unique_ptr<pair> to;
  std::uint64_t quiet = 0, at = 0, source = 0;
  int tries = 0;
  bool over = false;
};

struct result_of_pull {
  std::optional<tp::result<tp::receipt>> done;
  std::uint8_t wrong = 0, honest = 0;
  bool right = false;
};

template <class Integrity, class Chunking>
result_of_pull pulled(std::uint64_t seed) {
  generator r(seed);
  const std::uint64_t kind = r.below(4), sources = 1 + r.below(5),
                      lines = std::min<std::uint64_t>(8, sources + r.below(4)),
                      piece = std::uint64_t{1} << (6 + r.below(11)), honest = r.below(sources),
                      losses = r.below(3) == 0 ? 30 + r.below(300) : 0;
  const model published = std::move(blank_model(kind).fill(1));
  model mine = blank_model(kind);
  result_of_pull p;
  std::vector<tampering> lies(sources);
  for (std::uint64_t s = 0; s < sources; ++s)
    if (s != honest && r.below(4) != 0) lies[s] = a_liar(r());
    else p.honest |= static_cast<std::uint8_t>(1u << s);
  tp::land to(mine.destination());
  const tp::pull_request request{.ref = id, .version = version_of(published), .recipient = {9}};
  tp::parallel_transfer<tp::land, Chunking, Integrity> t(to, request, {}, 1);
  std::deque<line> all(lines);
  for (std::uint64_t i = 0; i < lines; ++i) {
    all[i].source = i % sources;
    t.coming(static_cast<std::uint8_t>(i), true);
  }
  tp::no_transfer idle;
  tp::error last{tp::errc::connection_failed};
  std::uint64_t patience = 20, slowness = 800, began = 0, began_with = 0;
  std::uint8_t hurried = 0xff;
  for (std::uint64_t turn = 0, over = 0; turn < 50'000 && !t.ended(); ++turn) {
    for (std::uint8_t n = 0; n < lines && !t.ended(); ++n) {
      line& l = all[n];
      if (l.over || (!l.to && turn < l.at)) continue;
      if (!l.to) {
        l.to = std::make_unique<pair>(cut{static_cast<std::size_t>(piece)});
        l.to->left.publish(published, id);
        if (lies[l.source]) l.to->owner_lies = [&lie = lies[l.source]](byte_vector& f) { lie(f); };
        l.to->right.end.begin_pull();
        t.up(n, static_cast<std::uint8_t>(l.source), l.to->right.end.next_id());
        l.quiet = 0;
      }
      const std::uint64_t before = l.to->to_right.carried;
      auto role = t.line_of(n);
      l.to->pump(idle, role);
      l.quiet = l.to->to_right.carried == before ? l.quiet + 1 : 0;
      const auto why = t.line_ended(n);
      const bool lost = losses != 0 && r.below(losses) == 0;
      if ((why || lost || l.to->right_error || l.to->left_error) && !t.ended()) {
        if (why) last = *why;
        t.lost(n);
        l.to.reset();
        if (lost && !why && !lies[l.source]) l.tries = 0;
        l.over = why || ++l.tries == 5;
        l.at = turn + 5 + r.below(20);
        over += l.over;
        t.coming(n, !l.over);
        continue;
      }
      if (n != t.first_line()) {
        if (t.line_pause(n).count() > 0 && r.below(3) == 0) t.resume_line(n);
        continue;
      }
      if (t.awaits(n) && l.quiet >= patience && t.replace_first())
        patience = std::min<std::uint64_t>(2 * patience, 1200);
      if (!t.waits_for_first() || hurried != t.first_line() || t.landed_bytes() >= began_with + 65'536) {
        hurried = t.first_line();
        began_with = t.landed_bytes();
        began = turn;
      }
      if (turn - began >= slowness && t.replace_first()) slowness *= 2;
    }
    if (over == lines && !t.ended()) t.fail(last);
  }
  if (t.ended()) p.done = t.outcome();
  p.wrong = t.wrong();
  p.right = mine.same_tensors(published) && mine.guards_intact();
  return p;
}

void expect_it_completes(const result_of_pull& p) {
  EXPECT_EQ(p.wrong & p.honest, 0) << "names an honest one";
  ASSERT_TRUE(p.done) << "never ends";
  ASSERT_TRUE(*p.done) << to_string(p.done->error().code);
  EXPECT_EQ((*p.done)->outcome, tp::outcome::completed);
  EXPECT_TRUE(p.right);
}

TEST(RandomLiars, An_honest_source_is_found_and_never_named) {
  for (std::uint64_t seed = 0; seed < 400 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    if (seed % 3 == 0) expect_it_completes(pulled<tp::image_digest, tp::fixed_bytes<65'536>>(seed));
    if (seed % 3 == 1) expect_it_completes(pulled<tp::image_digest, tp::per_tensor<1 << 20>>(seed));
    if (seed % 3 == 2) expect_it_completes(pulled<tp::chunk_and_image_digest, tp::adaptive_bytes<4096, 65'536>>(seed));
  }
}

struct own_memory {
  std::deque<byte_vector> memory;
  tp::result<std::byte*> allocate(const tp::tensor_entry& entry) {
    return memory.emplace_back(static_cast<std::size_t>(entry.size_bytes())).data();
  }
  void clear() noexcept { memory.clear(); }
};
TEST(RandomLiars, A_header_that_a_liar_has_begun_is_begun_again) {
  const model published = std::move(blank_model(3).fill(1));
  tp::new_model<own_memory> to{{}, {.max_bytes = 4 << 20}};
  const tp::pull_request request{.ref = id, .version = version_of(published), .recipient = {9}};
  tp::parallel_transfer<tp::new_model<own_memory>, tp::fixed_bytes<4096>, tp::image_digest> t(to, request, {}, 1);
  pair liar(cut{1024}), honest(cut{1024});
  liar.left.publish(published, id);
  honest.left.publish(published, id);
  liar.owner_lies = [](byte_vector& f) {
    if (is_chunk(f)) f[100] ^= std::byte{1};
  };
  tp::no_transfer idle;
  auto first = t.line_of(0), second = t.line_of(1);
  t.up(0, 0, liar.right.end.next_id());
  liar.right.end.begin_pull();
  for (int i = 0; i < 200 && t.landed_bytes() < 8192; ++i) liar.pump(idle, first);
  t.lost(0);
  t.up(1, 1, honest.right.end.next_id());
  honest.right.end.begin_pull();
  for (int i = 0; i < 5000 && !t.ended(); ++i) honest.pump(idle, second);
  ASSERT_TRUE(t.ended());
  EXPECT_TRUE(completed(t.outcome()));
  EXPECT_EQ(to.made().tensor_count, 300u);
  EXPECT_EQ(t.wrong() & 2, 0);
}

}  // namespace random_liars_test
