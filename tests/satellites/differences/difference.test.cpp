// A difference as a whole: models of any tensors, published and pulled, and what is none.
#include "consumers/feed.hpp"
#include "support/allocation_counter.hpp"
#include "support/random_models.hpp"

#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>
#include <tensorpull/satellites/differences/applied_difference.hpp>
#include <tensorpull/satellites/differences/deflate/deflate.hpp>

#include <gtest/gtest.h>

namespace difference_test {

using namespace test;
using tp::difference_state;
using applied = tp::applied_difference<tp::deflate_coder>;

/// Changes some elements, or all, or none.
void train(model& m, generator& g) {
  const auto to = m.destination();
  const std::uint64_t how = g.below(4);
  for (std::size_t i = 0; i < to.schema->tensor_count; ++i) {
    const tp::tensor_entry& t = to.schema->tensors[i];
    if (t.type == dtype::boolean || g.below(3) == 0) continue;
    for (std::uint64_t k = 0; k < t.size_bytes(); k += 1 + g.below(how == 0 ? 3 : 400))
      to.address(i)[k] ^= static_cast<std::byte>(g.below(how == 1 ? 256 : 4));
  }
}
/// The image of a difference, as a model that a test feeds.
model as_model(const_byte_span bytes) {
  model m;
  m.add("difference", dtype::u8, {bytes.size()}).ready();
  if (!bytes.empty()) std::memcpy(m.destination().address(0), bytes.data(), bytes.size());
  return m;
}
tp::model_difference between(const model& from, const model& to) {
  tp::deflate_coder coder;
  auto made = tp::model_difference::make(from.source(), to.source(), coder);
  EXPECT_TRUE(made);
  return std::move(*made);
}
std::uint64_t digest_of_tensors(const model& m) {
  const auto image = m.image_bytes();
  tp::xxhash_digest hash;
  hash.update(std::span(image).subspan(static_cast<std::size_t>(m.schema().header_bytes)));
  return hash.digest();
}
bool same(const model& a, const model& b) { return a.image_bytes() == b.image_bytes(); }

struct pair_of_versions {
  explicit pair_of_versions(std::uint64_t seed, std::uint64_t most_bytes = 100'000)
      : g(seed), plan{.most_tensors = 60, .most_bytes = most_bytes, .threshold = seed % 2 == 0 ? 70'000u : 64u} {
    generator a(seed), b(seed);
    old.emplace(a, plan);
    now.emplace(b, plan);
    train(now->get(), g);
  }
  generator g;
  model_plan plan;
  std::optional<drawn_model> old, now;
};

TEST(Difference, Makes_any_model_the_version_that_it_leads_to_in_pieces_of_any_length) {
  const model_seeds seeds(60);
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    SCOPED_TRACE(seed);
    pair_of_versions v(seed);
    const auto difference = between(v.old->get(), v.now->get());
    const model carried = as_model(difference.bytes());
    EXPECT_EQ(carried.image_bytes().size(), difference.image().schema->image_bytes);
    for (const std::uint64_t piece : {std::uint64_t{1}, 1 + v.g.below(5000), ~std::uint64_t{0}}) {
      if (piece == 1 && difference.bytes().size() > 50'000) continue;
      generator again(seed);
      drawn_model mine(again, v.plan);
      tp::deflate_coder coder;
      auto to = *applied::make(mine.get().destination(), coder);
      EXPECT_EQ(to.state(), difference_state::untouched);
      ASSERT_TRUE(feeder(to, carried, 1 + v.g.below(100'000), piece).run());
      EXPECT_EQ(to.state(), difference_state::applied);
      EXPECT_EQ(to.to_digest(), digest_of_tensors(v.now->get()));
      ASSERT_TRUE(same(mine.get(), v.now->get()));
      EXPECT_TRUE(mine.get().guards_intact());
    }
  }
}

TEST(Difference, A_model_that_is_not_the_old_version_is_refused_before_a_wrong_element_changes) {
  int of_the_first = 0;
  for (std::uint64_t seed = 1; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    pair_of_versions v(seed);
    const auto from = v.old->get().image_bytes(), to = v.now->get().image_bytes();
    const std::size_t data = static_cast<std::size_t>(v.old->get().schema().header_bytes);
    if (from == to || from.size() == data) continue;
    const auto difference = between(v.old->get(), v.now->get());
    const model carried = as_model(difference.bytes());
    const std::size_t first = static_cast<std::size_t>(std::mismatch(from.begin(), from.end(), to.begin()).first -
                                                       from.begin());
    const bool at_first = seed % 2 == 0;
    const std::size_t wrong = at_first ? first : data + static_cast<std::size_t>(v.g.below(from.size() - data));
    generator again(seed);
    drawn_model mine(again, v.plan);
    const auto into = mine.get().destination();
    for (std::size_t i = 0; i < into.schema->tensor_count; ++i) {
      const tp::tensor_entry& t = into.schema->tensors[i];
      if (wrong - data >= t.begin && wrong - data < t.end) into.address(i)[wrong - data - t.begin] ^= std::byte{1};
    }
    const auto before = mine.get().image_bytes();
    ASSERT_FALSE(before == from);
    tp::deflate_coder coder;
    auto consumer = *applied::make(into, coder);
    ASSERT_EQ(code_of(feeder(consumer, carried, 4096).run()), errc::digest_mismatch);
    const auto after = mine.get().image_bytes();
    EXPECT_TRUE(consumer.state() != difference_state::untouched || after == before);
    EXPECT_TRUE(from[wrong] == to[wrong] || after[wrong] == before[wrong]) << "a wrong element that would change";
    if (!at_first) continue;
    ++of_the_first;
    EXPECT_EQ(consumer.state(), difference_state::untouched) << "the first that would change";
  }
  EXPECT_GT(of_the_first, 10);
}

// As a file's next version is made beside it: what is read is the old one, and all of the new one is written.
TEST(Difference, A_destination_that_is_read_from_elsewhere_gets_what_has_not_changed_too) {
  constexpr std::size_t n = 100'000;
  model old, now;
  for (model* m : {&old, &now}) m->add("w", dtype::u16, {n}).ready().fill(5);
  std::byte* const changed = now.destination().address(0);
  changed[0] ^= std::byte{1};
  const auto difference = between(old, now);
  struct both {
    const std::byte* from;
    byte_vector to, staging;
  } files{old.destination().address(0), byte_vector(2 * n), byte_vector(4096)};
  const tp::source_reader reader{
      [](const void* context, std::uintptr_t, std::uint64_t at, std::span<std::byte> out) noexcept {
        std::memcpy(out.data(), static_cast<const both*>(context)->from + at, out.size());
        return tp::result<void>();
      },
      &files};
  const tp::destination_writer writer{
      [](void* context, std::uintptr_t, std::uint64_t at, std::span<const std::byte> bytes) noexcept {
        std::memcpy(static_cast<both*>(context)->to.data() + at, bytes.data(), bytes.size());
        return tp::result<void>();
      },
      &files, files.staging, &reader};
  const std::array<std::uint64_t, 1> shape{n};
  const tp::mutable_tensor_view view{
      .name = "w", .type = dtype::u16, .shape = shape, .data = nullptr, .indirect = true};
  auto image = tp::dynamic_image::make(std::span(&view, 1), {}, writer);
  ASSERT_TRUE(image);
  tp::deflate_coder coder;
  auto to = *applied::make(image->destination(), coder);
  ASSERT_TRUE(feeder(to, as_model(difference.bytes()), 4096).run());
  EXPECT_TRUE(std::equal(files.to.begin(), files.to.end(), changed));
}

TEST(Difference, Of_another_model_or_of_anything_else_is_refused_by_name) {
  pair_of_versions v(2), w(3);
  const auto difference = between(v.old->get(), v.now->get());
  tp::deflate_coder coder;
  {
    const auto of_a_smaller_one = between(w.old->get(), w.now->get());
    auto to = *applied::make(v.old->get().destination(), coder);
    EXPECT_EQ(code_of(feeder(to, as_model(of_a_smaller_one.bytes()), 4096).run()), errc::schema_mismatch);
  }
  {
    tp::no_coder none;
    auto to = *tp::applied_difference<tp::no_coder>::make(v.old->get().destination(), none);
    EXPECT_EQ(code_of(feeder(to, as_model(difference.bytes()), 4096).run()), errc::unsupported_layout);
  }
  for (const std::size_t n : {0u, 1u, 63u, 64u, 5000u}) {
    auto to = *applied::make(v.old->get().destination(), coder);
    EXPECT_EQ(code_of(feeder(to, as_model(byte_vector(n, std::byte{7})), 4096).run()), errc::bad_frame);
    EXPECT_EQ(to.state(), difference_state::untouched);
  }
  // what is longer than a difference can be is refused before a byte of it comes
  for (const std::uint64_t n : {std::uint64_t{1} << 60, 2 * v.old->get().image_bytes().size() + 1'000'000}) {
    auto to = *applied::make(v.old->get().destination(), coder);
    EXPECT_EQ(code_of(to.begin({.image_bytes = n, .data_start = 64})), errc::bad_frame);
    EXPECT_EQ(to.state(), difference_state::untouched);
  }
  auto long_header = *applied::make(v.old->get().destination(), coder);
  EXPECT_EQ(code_of(long_header.begin({.image_bytes = 100'064, .data_start = 100'000})), errc::too_large);
  EXPECT_EQ(code_of(tp::model_difference::make(v.old->get().source(), w.now->get().source(), coder)),
            errc::schema_mismatch);
  EXPECT_EQ(code_of(tp::model_difference::make(v.old->get().source(), v.now->get().source(), coder, 70)),
            errc::too_large);
}

TEST(Difference, Whatever_is_wrong_in_it_is_an_error_or_no_harm) {
  const model_seeds seeds(300);
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    SCOPED_TRACE(seed);
    pair_of_versions v(seed, 20'000);
    const auto difference = between(v.old->get(), v.now->get());
    byte_vector wrong(difference.bytes().begin(), difference.bytes().end());
    switch (v.g.below(4)) {
      case 0: wrong.resize(static_cast<std::size_t>(v.g.below(wrong.size()))); break;
      case 1: wrong.resize(wrong.size() + 1 + v.g.below(10)); break;
      case 2:
        wrong[static_cast<std::size_t>(v.g.below(wrong.size()))] ^= static_cast<std::byte>(1 + v.g.below(255));
        break;
      default:
        if (wrong.size() > 100) v.g.fill(std::span(wrong).subspan(64 + static_cast<std::size_t>(v.g.below(30))));
        else wrong.clear();
    }
    generator again(seed);
    drawn_model mine(again, v.plan);
    tp::deflate_coder coder;
    auto to = *applied::make(mine.get().destination(), coder);
    const auto took = feeder(to, as_model(wrong), 1 + v.g.below(9000), 1 + v.g.below(9000)).run();
    EXPECT_TRUE(mine.get().guards_intact());
    EXPECT_EQ(to.state() == difference_state::applied, took.has_value());
    // the digest at the end says what it has to be
    EXPECT_TRUE(!took || same(mine.get(), v.now->get()));
    EXPECT_TRUE(to.state() != difference_state::untouched || same(mine.get(), v.old->get()));
  }
}

TEST(Difference, What_comes_again_after_a_lost_connection_is_passed_over) {
  pair_of_versions v(4);
  const auto difference = between(v.old->get(), v.now->get());
  const auto image = as_model(difference.bytes()).image_bytes();
  tp::deflate_coder coder;
  auto to = *applied::make(v.old->get().destination(), coder);
  ASSERT_TRUE(to.begin(describe(as_model(difference.bytes()))));
  generator g(1);
  constexpr std::uint64_t chunk = 5000;
  std::uint64_t at = 0;
  while (at < image.size()) {
    const std::uint64_t end = std::min<std::uint64_t>((at / chunk + 1) * chunk, image.size());
    byte_span out[4];
    const auto p = to.prepare(at, end - at, out);
    ASSERT_EQ(p.pieces, 1u);
    std::memcpy(out[0].data(), image.data() + at, out[0].size());
    const auto some = out[0].first(1 + static_cast<std::size_t>(g.below(out[0].size())));
    ASSERT_TRUE(to.commit(at, some));
    at += some.size();
    if (at == end) {
      ASSERT_TRUE(to.chunk((end - 1) / chunk * chunk, 0));
    } else if (g.below(3) == 0) {
      at = at / chunk * chunk;
      to.rewind(at);
    }
  }
  ASSERT_TRUE(to.finish({}));
  EXPECT_TRUE(same(v.old->get(), v.now->get()));
}

/// Gives a consumer each chunk damaged, then as it is, as a transfer does that checks the digest of each.
tp::result<void> feed_damaged(applied& to, const model& carried, std::uint64_t chunk, std::uint64_t piece,
                              generator& g) {
  if (const auto ok = to.begin(describe(carried)); !ok) return ok;
  const auto image = carried.image_bytes();
  for (std::uint64_t begin = 0; begin < image.size(); begin += chunk) {
    const std::uint64_t end = std::min<std::uint64_t>(begin + chunk, image.size());
    for (const bool damaged : {true, false}) {
      for (std::uint64_t at = begin; at < end;) {
        byte_span out[1];
        if (to.prepare(at, std::min(piece, end - at), out).bytes == 0) return tp::failure(errc::busy);
        std::memcpy(out[0].data(), image.data() + at, out[0].size());
        if (damaged) out[0][static_cast<std::size_t>(g.below(out[0].size()))] ^= std::byte{0x11};
        if (const auto ok = to.commit(at, out[0]); !ok) return ok;
        at += out[0].size();
      }
      if (damaged) to.rewind(begin);
    }
    if (const auto ok = to.chunk(begin, end - begin); !ok) return ok;
  }
  return to.finish({});
}

TEST(Difference, A_damaged_chunk_that_comes_again_does_no_harm) {
  for (std::uint64_t seed = 1; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    pair_of_versions v(seed);
    const auto difference = between(v.old->get(), v.now->get());
    const model carried = as_model(difference.bytes());
    for (const std::uint64_t chunk : {std::uint64_t{100}, std::uint64_t{30'000}, tp::default_chunk_bytes}) {
      generator again(seed);
      drawn_model mine(again, v.plan);
      tp::deflate_coder coder;
      auto to = *applied::make(mine.get().destination(), coder);
      ASSERT_TRUE(feed_damaged(to, carried, chunk, 1 + v.g.below(50'000), v.g));
      EXPECT_EQ(to.state(), difference_state::applied);
      EXPECT_TRUE(same(mine.get(), v.now->get()));
    }
  }
}

TEST(Difference, A_chunk_that_is_longer_than_what_is_held_is_applied_while_it_comes) {
  model old, now;
  for (model* m : {&old, &now}) m->add("w", dtype::f32, {300'000}).ready().fill(5);
  generator g(3);
  for (std::size_t i = 0; i < 1'200'000; ++i) now.destination().address(0)[i] ^= static_cast<std::byte>(g.below(256));
  const auto difference = between(old, now);
  const model carried = as_model(difference.bytes());
  tp::deflate_coder coder;
  {
    model mine;
    mine.add("w", dtype::f32, {300'000}).ready().fill(5);
    auto to = *applied::make(mine.destination(), coder, 1);
    ASSERT_TRUE(feeder(to, carried, ~std::uint64_t{0} / 2).run());
    EXPECT_TRUE(same(mine, now));
  }
  // damaged there, it is an error that says so
  auto to = *applied::make(old.destination(), coder, 1);
  EXPECT_FALSE(feed_damaged(to, carried, ~std::uint64_t{0} / 2, ~std::uint64_t{0}, g));
  EXPECT_EQ(to.state(), difference_state::partly);
}

TEST(Difference, Takes_no_memory_for_a_block) {
  model old, now;
  for (model* m : {&old, &now}) m->add("w", dtype::f32, {1'000'000}).ready().fill(5);
  generator g(3);
  for (std::size_t i = 0; i < 4'000'000; i += 4) now.destination().address(0)[i] ^= static_cast<std::byte>(g.below(16));
  const auto difference = between(old, now);
  EXPECT_LT(difference.bytes().size(), 1'500'000u);
  const model carried = as_model(difference.bytes());
  tp::deflate_coder coder;
  auto to = *applied::make(old.destination(), coder);
  feeder transfer(to, carried, 1 << 20, 65'536);
  ASSERT_TRUE(transfer.run(difference.bytes().size() / 4));  // the coder has its memory
  const allocation_watch watch;
  ASSERT_TRUE(transfer.run(difference.bytes().size() / 4 * 3));
  EXPECT_EQ(watch.count(), 0u);
  ASSERT_TRUE(transfer.run());
  EXPECT_TRUE(same(old, now));
}

}  // namespace difference_test
