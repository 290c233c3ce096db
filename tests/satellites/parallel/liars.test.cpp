// Several sources of which some lie, are silent or publish something else, over lines that are lost and come back: a
// pull without a root ends, it never lands a wrong byte as right, and does without those that are of no use.
#include "driven_lines.hpp"

#include <tensorpull/satellites/parallel/parallel_transfer.hpp>

namespace liars_test {

using namespace test;

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

/// Where its bytes go, and what it was told of their end.
struct told : tp::land {
  using tp::land::land;
  void abandon(const tp::error& why) noexcept {
    tp::land::abandon(why);
    ++abandoned;
  }
  int abandoned = 0;
};
struct outcome_of_pull {
  std::optional<tp::result<tp::receipt>> done;
  std::uint64_t turns = 0;
  int abandoned = 0;
  bool right = false;
  tp::optional<tp::error> left_out;  ///< why the last honest line was, if one was
};

template <class Integrity, class Chunking>
outcome_of_pull pulled(const model& published, model mine, std::vector<tampering> lies, const driven::lines_of& how,
                       generator& r) {
  outcome_of_pull p;
  told to(mine.destination());
  const tp::pull_request request{.ref = driven::id, .version = version_of(published), .recipient = {9}};
  tp::parallel_transfer<told, Chunking, Integrity> t(to, request, {}, 1);
  p.turns = driven::drive(t, published, std::move(lies), how, r, nullptr, &p.left_out);
  if (t.ended()) p.done = t.outcome();
  p.abandoned = to.abandoned;
  p.right = mine.same_tensors(published) && mine.guards_intact();
  return p;
}

template <class Integrity, class Chunking>
void expect_no_wrong_byte(std::uint64_t seed, std::array<int, 3>& seen) {
  generator r(seed);
  const std::uint64_t kind = r.below(4), sources = 1 + r.below(5),
                      lines = std::min<std::uint64_t>(8, sources + r.below(4)),
                      piece = std::uint64_t{1} << (6 + r.below(11)), honest = r.below(sources),
                      losses = r.below(3) == 0 ? 30 + r.below(300) : 0;
  const bool all_honest = r.below(4) == 0;
  const model published = std::move(blank_model(kind).fill(1));
  std::vector<tampering> lies(sources);
  bool is_one = false;
  for (std::uint64_t s = 0; s < sources; ++s)
    if (!all_honest && s != honest && r.below(4) != 0) lies[s] = a_liar(r()), is_one = true;
  const auto p = pulled<Integrity, Chunking>(published, blank_model(kind), std::move(lies), {lines, piece, losses}, r);
  ASSERT_TRUE(p.done) << "never ends";
  EXPECT_TRUE(is_one || !p.left_out) << to_string(p.left_out->code);
  if (!is_one) ++seen[0];
  else ++seen[*p.done ? 1 : 2];
  if (*p.done) {
    EXPECT_EQ((*p.done)->outcome, tp::outcome::completed);
    EXPECT_TRUE(p.right);
    EXPECT_EQ(p.abandoned, 0);
  } else {
    EXPECT_TRUE(is_one) << to_string(p.done->error().code);
    EXPECT_LE(p.abandoned, 1);
  }
}

TEST(Liars, No_wrong_byte_counts_as_right) {
  std::array<int, 3> seen{};  // all are honest; one lies, and it completes; it fails
  for (std::uint64_t seed = 0; seed < 450 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    if (seed % 3 == 0) expect_no_wrong_byte<tp::image_digest, tp::fixed_bytes<65'536>>(seed, seen);
    if (seed % 3 == 1) expect_no_wrong_byte<tp::image_digest, tp::per_tensor<1 << 20>>(seed, seen);
    if (seed % 3 == 2) expect_no_wrong_byte<tp::chunk_and_image_digest, tp::adaptive_bytes<4096, 65'536>>(seed, seen);
  }
  for (const int each : seen) EXPECT_GE(each, 30);
}

/// How a source answers that is of no use, and whether it may be the first that is asked.
struct habit {
  const char* name;
  bool may_be_first;
  tampering lies;
};
template <class Change>
habit that_describes(const char* name, bool may_be_first, Change change) {
  return {name, may_be_first, describes(change)};
}
const habit habits[] = {
    that_describes("another version", true, [](tp::frame& m) { ++m.version; }),
    that_describes("nothing published", true,
                   [](tp::frame& m) {
                     m.kind = tp::frame_kind::refused;
                     m.status = tp::status::unknown_reference;
                   }),
    that_describes("busy for ever", true,
                   [](tp::frame& m) {
                     m.kind = tp::frame_kind::refused;
                     m.status = tp::status::busy;
                     m.delay_ms = 1;
                   }),
    {"silent", true, [](byte_vector& f) { f.clear(); }},
    {"describes and is silent", true,
     [](byte_vector& f) {
       if (is_chunk(f)) f.clear();
     }},
    {"chunks of another length", true, lie_about_chunks([](tp::frame& m) { m.length -= m.offset > 0 ? 1 : 0; })},
    // the first description is believed
    that_describes("a longer image", false, [](tp::frame& m) { m.image_bytes += 8; }),
    that_describes("a longer header", false, [](tp::frame& m) { m.image_bytes += 8, m.data_start += 8; }),
    that_describes("a shorter header", false, [](tp::frame& m) { m.image_bytes -= 8, m.data_start -= 8; }),
    {"another image", false,
     [](byte_vector& f) {
       if (is_chunk(f)) f[80] ^= std::byte{1};
       else describes([](tp::frame& m) { m.image_bytes += 8, m.data_start += 8; })(f);
     }},
    that_describes("an endless image", false, [](tp::frame& m) { m.image_bytes = ~std::uint64_t{0} / 2; }),
};
outcome_of_pull of_habits(const model& published, std::vector<tampering> lies) {
  generator r(1);
  const driven::lines_of how{lies.size()};
  return pulled<tp::image_digest, tp::fixed_bytes<65'536>>(published, blank_model(2), std::move(lies), how, r);
}

TEST(Liars, Sources_that_are_of_no_use_are_left_out) {
  const model published = std::move(blank_model(2).fill(1));
  const std::uint64_t alone = of_habits(published, {{}}).turns;
  for (const habit& h : habits)
    for (std::size_t n = 2; n <= 4; ++n)
      for (std::size_t place = 0; place < (h.may_be_first ? n : 1); ++place) {
        std::vector<tampering> lies(n, h.lies);
        lies[place] = {};
        const auto p = of_habits(published, std::move(lies));
        ASSERT_TRUE(p.done && *p.done) << h.name << ", " << n << ", " << place;
        EXPECT_TRUE(p.right);
        EXPECT_LE(p.turns, 2 * alone + 100) << h.name;
      }
}

TEST(Liars, Wrong_bytes_of_any_source_end_the_pull_and_the_memory_is_told) {
  const model published = std::move(blank_model(2).fill(1));
  for (std::size_t liar = 0; liar < 3; ++liar) {
    std::vector<tampering> lies(3);
    std::size_t lied = 0;
    lies[liar] = [&](byte_vector& f) {
      if (is_chunk(f) && lied++ == 2) f[80] ^= std::byte{1};
    };
    const auto p = of_habits(published, std::move(lies));
    ASSERT_TRUE(p.done);
    EXPECT_EQ(code_of(*p.done), tp::errc::digest_mismatch);
    EXPECT_EQ(p.abandoned, 1);
    EXPECT_GT(lied, 2u);
  }
}

}  // namespace liars_test
