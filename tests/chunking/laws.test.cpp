// The laws of every chunking strategy, over images of every kind.
#include "support/models.hpp"

#include <tensorpull/chunking/policies.hpp>

#include <set>
#include <type_traits>
#include <utility>

namespace laws_test {

using namespace test;

std::vector<model> images() {
  std::vector<model> all;
  all.push_back(mixed_model());
  all.push_back(std::move(model().ready()));  // no tensors: a header alone
  all.push_back(std::move(model().add("only", tp::dtype::u8, {1}).ready()));
  all.push_back(std::move(model().add("empty", tp::dtype::f64, {0}).ready()));
  all.push_back(std::move(model()
                              .add("large", tp::dtype::f32, {100, 100})
                              .add("b", tp::dtype::u8, {4096})
                              .add("c", tp::dtype::u8, {4097})
                              .ready()));
  model many;
  generator random(3);
  for (int i = 0; i < 300; ++i)
    many.add("t" + std::to_string(i), random.below(2) == 0 ? tp::dtype::f32 : tp::dtype::i8, {random.below(50)});
  all.push_back(std::move(many.ready()));
  return all;
}

/// Cuts a whole image. Checks every law that one sequence of chunks can break.
template <tp::chunking_strategy Chunking>
std::vector<std::uint64_t> cut_all(const Chunking& chunking, const tp::chunk_context& context) {
  std::vector<std::uint64_t> ends;
  for (std::uint64_t at = 0; at < context.image_bytes;) {
    const std::uint64_t n = chunking.next(at, context);
    EXPECT_GE(n, 1u) << at;
    EXPECT_LE(n, context.image_bytes - at) << at;
    EXPECT_TRUE(Chunking::max_chunk_bytes == 0 || n <= Chunking::max_chunk_bytes) << at;
    EXPECT_EQ(n, chunking.next(at, context)) << "not a pure function";
    if (n == 0 || n > context.image_bytes - at) return ends;
    at += n;
    ends.push_back(at);
  }
  return ends;
}

template <tp::chunking_strategy Chunking>
void check_laws(const Chunking& chunking) {
  for (const model& m : images()) {
    for (const bool with_schema : {true, false})
      for (const std::uint64_t start : {m.schema().header_bytes, m.schema().header_bytes + 8, std::uint64_t{8}}) {
        // the owner's header may be longer or shorter than ours
        const tp::chunk_context context{start + m.schema().data_bytes(), start, with_schema ? &m.schema() : nullptr};
        const auto ends = cut_all(chunking, context);
        ASSERT_FALSE(ends.empty());
        EXPECT_EQ(ends.back(), context.image_bytes);
        // a resumed transfer cuts in the same places
        for (std::size_t i = 0; i + 1 < ends.size(); ++i)
          ASSERT_EQ(ends[i] + chunking.next(ends[i], context), ends[i + 1]);
        // any other offset, as after a shortened answer, stays inside too
        generator random(9);
        for (int i = 0; i < 200; ++i) {
          const std::uint64_t at = random.below(context.image_bytes), n = chunking.next(at, context);
          ASSERT_TRUE(n >= 1 && n <= context.image_bytes - at) << at;
        }
      }
  }
}

TEST(Chunking, Laws_of_fixed_bytes) {
  check_laws(tp::fixed_bytes<8>{});
  check_laws(tp::fixed_bytes<1024>{});
  check_laws(tp::fixed_bytes<2'097'152>{});
  check_laws(tp::fixed_bytes<536'870'904>{});
}
TEST(Chunking, Laws_of_bytes_up_to) {
  for (const std::uint64_t n : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{7}, std::uint64_t{1000},
                                std::uint64_t{5000}, ~std::uint64_t{0}}) {
    check_laws(tp::bytes_up_to<1>{n});
    check_laws(tp::bytes_up_to<4096>{n});
    check_laws(tp::bytes_up_to<536'870'904>{n});
  }
}
TEST(Chunking, Laws_of_per_tensor) {
  check_laws(tp::per_tensor<1>{});
  check_laws(tp::per_tensor<100>{});
  check_laws(tp::per_tensor<1'000'000>{});
}
TEST(Chunking, Laws_of_fit_datagram) {
  check_laws(tp::fit_datagram{});
  check_laws(tp::fit_datagram::within<1100>{});
  static_assert(
      std::is_same_v<tp::fit_datagram::within<1100>, tp::fixed_bytes<1096>> &&
      std::is_same_v<tp::fit_datagram::within<tp::max_payload_bytes>, tp::fixed_bytes<tp::default_chunk_bytes>>);
}
TEST(Chunking, Laws_of_adaptive_bytes) {
  check_laws(tp::adaptive_bytes<8, 8>{});
  for (const std::uint64_t rate : {std::uint64_t{1}, std::uint64_t{100'000}, std::uint64_t{1} << 40}) {
    tp::adaptive_bytes<24, 5000> c;
    for (std::uint64_t landed = 0, i = 1; i < 20; ++i)
      c.measured({0, 0, landed += rate, std::chrono::milliseconds(10 * i)});
    check_laws(c);
  }
}
TEST(Chunking, Adaptive_chunks_take_a_tenth_of_a_second) {
  const tp::chunk_context image{1'000'000'000, 0, nullptr};
  tp::adaptive_bytes<1024, 1'000'000> c;
  std::uint64_t landed = 0;
  const auto at_rate = [&](std::uint64_t bytes_a_second, int steps = 100) {
    for (int i = 0; i < steps; ++i)
      c.measured({landed, landed, landed, std::chrono::milliseconds(1)}), landed += bytes_a_second / 1000;
    return c.next(landed, image);
  };
  EXPECT_EQ(c.next(0, image), 1024u) << "it begins with the shortest";
  EXPECT_EQ(at_rate(1'000'000), 65'536u) << "the power of two below 100,000";
  EXPECT_EQ(at_rate(4'000'000'000), 1'000'000u);
  EXPECT_EQ(at_rate(4'000), 1024u);
  EXPECT_EQ(at_rate(40'000'000, 24), 1024u) << "too short to be a measurement";
  c = {};
  landed = 0;
  EXPECT_EQ(at_rate(0, 10'000), 1024u) << "nothing came: nothing was measured, and the time counts";
  c = {};
  c.measured({0, 0, ~std::uint64_t{0}, std::chrono::nanoseconds(25'000'000)});
  EXPECT_EQ(c.next(0, image), 1'000'000u) << "no overflow";
}
TEST(Chunking, Adaptive_chunks_on_their_way_keep_their_length) {
  const tp::chunk_context image{100'000'000, 0, nullptr};
  tp::adaptive_bytes<1024, 1'048'576> c;
  generator random(5);
  // a window of requests in flight, of which each is measured again when it comes
  std::vector<std::pair<std::uint64_t, std::uint64_t>> flying;
  std::uint64_t asked = 0, received = 0;
  std::set<std::uint64_t> lengths;
  while (received < image.image_bytes) {
    while (asked < image.image_bytes && flying.size() < 1 + random.below(8)) {
      const std::uint64_t n = c.next(asked, image);
      lengths.insert(n);
      flying.push_back({asked, n});
      asked += n;
    }
    if (!flying.empty() && random.below(3) != 0) {
      ASSERT_EQ(c.next(flying.front().first, image), flying.front().second) << "an answer is compared with this";
      received += flying.front().second;
      flying.erase(flying.begin());
    }
    if (random.below(500) == 0) asked = received, flying.clear();  // a time-out: all is asked for again
    c.measured({asked, received, received,
                std::chrono::microseconds(1 + random.below(random.below(4) == 0 ? 200'000 : 20'000))});
  }
  EXPECT_GT(lengths.size(), 3u) << "it has adapted";
}
TEST(Chunking, Laws_of_whole) { check_laws(tp::whole{}); }

TEST(Chunking, Fixed_bytes_are_all_equal_but_the_last) {
  const model m = mixed_model();
  std::uint64_t last = 0;
  const auto ends = cut_all(tp::fixed_bytes<1024>{}, {m.schema().image_bytes, m.schema().header_bytes, nullptr});
  for (std::size_t i = 0; i + 1 < ends.size(); last = ends[i++]) EXPECT_EQ(ends[i] - last, 1024u);
}

TEST(Chunking, Per_tensor_ends_where_tensors_end) {
  for (const model& m : images()) {
    const auto ends = cut_all(tp::per_tensor<1'000'000>{},
                              {m.schema().image_bytes, m.schema().header_bytes, &m.schema()});
    std::vector<std::uint64_t> expected{m.schema().header_bytes};
    for (const auto& t : m.schema().entries())
      if (t.begin != t.end) expected.push_back(m.schema().header_bytes + t.end);
    EXPECT_EQ(ends, expected);
  }
}

TEST(Chunking, Before_the_size_is_known_the_first_chunk_is_a_full_one) {
  const tp::chunk_context unknown{~std::uint64_t{0}, 0, nullptr};
  EXPECT_EQ(tp::fixed_bytes<1024>::next(0, unknown), 1024u);
  EXPECT_EQ((tp::bytes_up_to<4096>{77}.next(0, unknown)), 77u);
}

TEST(Chunking, A_schema_that_contradicts_the_sizes_stays_inside) {
  const model m = mixed_model();  // what an owner that lies about its sizes can cause, before the consumer refuses
  for (const std::uint64_t image : {std::uint64_t{9}, std::uint64_t{1000}, ~std::uint64_t{0}})
    for (const std::uint64_t start : {std::uint64_t{8}, image / 2, image})
      for (std::uint64_t at : {std::uint64_t{0}, start - 1, std::min(start, image - 1), image - 1}) {
        const std::uint64_t n = tp::per_tensor<4096>::next(at, {image, start, &m.schema()});
        EXPECT_TRUE(n >= 1 && n <= 4096 && n <= image - at) << image << ' ' << start << ' ' << at;
      }
}

}  // namespace laws_test
