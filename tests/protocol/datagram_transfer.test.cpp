// A pull over datagrams that are lost, doubled, delayed and re-ordered.
#include "support/lossy_pair.hpp"

#include <tensorpull/consumers/any_schema/new_model.hpp>

namespace datagram_transfer_test {

using namespace test;

template <std::uint64_t N>
using pull = tp::datagram_transfer<tp::land, tp::fixed_bytes<N>, tp::image_digest>;

model large(std::uint64_t floats = 300'000) {
  model m;
  m.add("w", dtype::f32, {floats}).add("b", dtype::f32, {1000}).add("h", dtype::bf16, {100, 30}).ready();
  return m;
}

struct conditions_and_name {
  link_conditions link;
  const char* name;
};
class Datagrams : public ::testing::TestWithParam<conditions_and_name> {};

TEST_P(Datagrams, Every_byte_arrives_and_the_owner_hears_of_it) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    lossy_pair<> pair(GetParam().link, seed);
    const model source = large().fill(seed);
    model target = large();
    const auto id = pair.left.publish(source, {1, 2}, 1);
    tp::land to(target.destination());
    pull<1112> t(to, request_for(id), {}, pair.right.end->next_id());
    ASSERT_TRUE(confirmed(pair.pull(t))) << seed << " " << t.landed_bytes() << " of " << t.total_bytes();
    EXPECT_EQ(source.image_bytes(), target.image_bytes());
    EXPECT_TRUE(pair.left.references.settled(id));
    EXPECT_EQ(pair.left.references.status_of(id)->completed, 1u);
    EXPECT_EQ(pair.not_understood, 0u) << to_string(pair.last_error);
    const auto sent = pair.left.references.status_of(id)->bytes_sent;
    EXPECT_LE(static_cast<double>(sent), (GetParam().link.doubled == 0 && GetParam().link.loss <= 0.05 ? 1.15 : 2) *
                                             static_cast<double>(t.total_bytes()))
        << seed;
    if (seed == 1)
      std::printf("%s: %.3f s, payload %.3f of the image, %llu + %llu datagrams\n", GetParam().name,
                  static_cast<double>(pair.now.count()) * 1e-6 - 1,
                  static_cast<double>(sent) / static_cast<double>(t.total_bytes()), (unsigned long long)pair.up.sent,
                  (unsigned long long)pair.down.sent);
  }
}
INSTANTIATE_TEST_SUITE_P(Links, Datagrams,
                         ::testing::Values(conditions_and_name{{}, "clean"},
                                           conditions_and_name{{1200, 0.05, 0, 50us, 0us}, "lossy"},
                                           conditions_and_name{{1200, 0.05, 0.05, 50us, 0us}, "doubling"},
                                           conditions_and_name{{1200, 0.02, 0.02, 200us, 60us}, "reordering"},
                                           conditions_and_name{{1200, 0.05, 0, 20'000us, 0us}, "far"},
                                           conditions_and_name{{1200, 0, 0, 20'000us, 0us}, "far_and_clean"},
                                           conditions_and_name{{128, 0.05, 0, 500us, 0us}, "short"},
                                           conditions_and_name{{600, 0.2, 0.1, 1000us, 900us}, "bad"}),
                         [](const auto& i) { return i.param.name; });

struct plain_memory {
  tp::result<std::byte*> allocate(const tp::tensor_entry& t) {
    all.emplace_back(t.size_bytes());
    return all.back().data();
  }
  void clear() { all.clear(); }
  std::vector<byte_vector> all;
};
TEST(DatagramTransfer, An_unchecked_chunk_that_overtakes_the_header_of_a_new_model_is_not_lost) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    lossy_pair<> pair({1200, 0, 0, 200us, 900us}, seed);
    model source;
    source.add("w", dtype::f32, {30'000}).ready().fill(seed);
    const auto id = pair.left.publish(source, {1, 2}, 1);
    tp::new_model<plain_memory> to({}, {.max_bytes = 1 << 20});
    tp::datagram_transfer<tp::new_model<plain_memory>, tp::fixed_bytes<1112>, tp::unverified> t(
        to, request_for(id), {}, pair.right.end->next_id());
    ASSERT_TRUE(succeeded(pair.pull(t))) << seed;
    EXPECT_EQ(to.allocator().all.at(0), source.bytes_of("w")) << seed;
  }
}

/// Takes one request at a time, as the small engine does.
struct one_request : tp::default_limits {
  static constexpr std::size_t pipelined_requests = 1;
};
TEST(DatagramTransfer, An_owner_that_allows_one_request_is_asked_for_one_at_a_time) {
  lossy_pair<one_request> pair({.delay = 20'000us});
  const model source = large(12'000).fill(1);
  model target = large(12'000);
  const auto id = pair.left.publish(source);
  tp::land to(target.destination());
  tp::datagram_transfer<tp::land, tp::fixed_bytes<1112>, tp::image_digest, one_request> t(to, request_for(id), {},
                                                                                          pair.right.end->next_id());
  pair.begin(t);
  std::size_t most = 0;
  pair.besides = [&](microseconds) {
    most = std::max(most, pair.up.on_its_way.size() + pair.down.on_its_way.size());
    return microseconds::max();
  };
  ASSERT_TRUE(succeeded(pair.finish(t)));
  EXPECT_EQ(most, 1u);
  EXPECT_EQ(source.image_bytes(), target.image_bytes());
  EXPECT_LE(pair.up.sent, target.image_bytes().size() / 1112 + 4) << "none is asked for twice";
}

}  // namespace datagram_transfer_test
