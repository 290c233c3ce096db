// Every consumer behind a real transfer: frames over a byte stream in memory, cut anywhere, tampered with, stopped
// half-way.
#include "../support/own_folder.hpp"
#include "../support/pair.hpp"
#include "values.hpp"

#include <tensorpull/consumers/any_schema/digest.hpp>
#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/consumers/average/weighted_average.hpp>
#include <tensorpull/consumers/double_buffered.hpp>
#include <tensorpull/consumers/tee.hpp>

#include <filesystem>
#include <fstream>
#include <memory>

namespace transfers_test {

using namespace test;
using tp::chunk_and_image_digest;
using tp::weighted_average;
using update = weighted_average<>::update;

template <class Integrity = tp::image_digest, class Consumer, class Chunking>
tp::result<tp::receipt> pull(pair& p, Consumer& to, Chunking chunking, tp::pull_request request = {.ref = {1, 2}}) {
  tp::transfer<Consumer, Chunking, Integrity> t(to, request, chunking, p.right.end.next_id());
  return p.pull(t);
}

template <class Chunking>
void average_three(Chunking chunking, std::uint64_t buffer_bytes, cut every) {
  model result = numeric_model(0, 11);
  std::deque<model> from;
  std::vector<contribution> all;
  auto buffers = *tp::chunk_buffers::make(buffer_bytes);
  auto average = *weighted_average<>::make(result.destination(), buffers);
  for (std::uint64_t i = 0; i < 3; ++i) {
    fill_values(from.emplace_back(numeric_model(0, 11)), i);
    all.push_back({&from.back(), 1.5 + static_cast<double>(i)});
    pair p(every);
    p.left.publish(from.back());
    update to(average, all.back().weight, {tp::recipient_id{i + 1}, 1});
    const auto done = pull<chunk_and_image_digest>(p, to, chunking);
    ASSERT_TRUE(completed(done));
    EXPECT_EQ(p.left.status().completed, 1u);
  }
  ASSERT_TRUE(average.finish());
  expect_mean(result, all);
  EXPECT_TRUE(result.guards_intact());
  EXPECT_EQ(buffers.available(), 4u);
}

TEST(ConsumersOverTheProtocol, Average_with_every_chunking) {
  for (const std::uint64_t odd : {1u, 3u, 7u, 13u, 100u, 1000u}) average_three(tp::bytes_up_to<1000>{odd}, odd, {});
  average_three(tp::fixed_bytes<64>{}, 64, {});
  average_three(tp::per_tensor<100>{}, 100, {});
  average_three(tp::whole{}, 8192, {});
}

TEST(ConsumersOverTheProtocol, Average_with_every_cut_of_the_stream) {
  generator random(3);
  for (const std::size_t most : {1u, 7u, 50u, 500u}) average_three(tp::bytes_up_to<256>{201}, 256, {most, &random});
}

TEST(ConsumersOverTheProtocol, A_hundred_updates_share_four_buffers) {
  constexpr std::size_t n = 100;
  using transfer_type = tp::transfer<update, tp::bytes_up_to<4096>, chunk_and_image_digest>;
  struct peer {
    model from;
    update to;
    pair wires;
    transfer_type pulled;
    peer(weighted_average<>& average, std::uint64_t i, generator& random)
        : from(numeric_model(0, 101)), to(average, 1 + static_cast<double>(i % 9), {tp::recipient_id{i + 1}, 1}),
          wires({700, &random}, 1), pulled(to, {.ref = {1, 2}}, {500 + i}, 1) {
      fill_values(from, i);
      wires.left.publish(from);
      wires.right.end.begin_pull();
    }
  };
  model result = numeric_model(0, 101);
  auto buffers = *tp::chunk_buffers::make(4096);
  auto average = *weighted_average<>::make(result.destination(), buffers);
  generator random(8);
  std::vector<std::unique_ptr<peer>> peers;
  for (std::uint64_t i = 0; i < n; ++i) peers.push_back(std::make_unique<peer>(average, i, random));
  tp::no_transfer idle;
  std::size_t ended = 0, least = 4;
  for (int round = 0; round < 200'000 && ended < n; ++round) {
    auto& p = *peers[static_cast<std::size_t>(random.below(n))];
    if (p.pulled.ended()) continue;
    ASSERT_TRUE(p.wires.pump(idle, p.pulled))
        << to_string((p.wires.right_error ? *p.wires.right_error : *p.wires.left_error).code);
    ended += p.pulled.ended();
    least = std::min(least, buffers.available());
  }
  ASSERT_EQ(ended, n) << "some update waits for ever";
  EXPECT_EQ(least, 0u) << "there was a time when all buffers were taken";
  std::vector<contribution> all;
  for (std::uint64_t i = 0; i < n; ++i) {
    ASSERT_TRUE(succeeded(peers[i]->pulled.outcome()));
    all.push_back({&peers[i]->from, 1 + static_cast<double>(i % 9)});
  }
  ASSERT_TRUE(average.finish());
  expect_mean(result, all);
}

/// Flips a bit of the payload of the k-th chunk.
tampering flip(std::size_t k) {
  return [k, seen = std::size_t{0}](byte_vector& f) mutable {
    if (kind_of(f) == tp::frame_kind::chunk && seen++ == k) f[tp::detail::payload_prefix::bytes + 5] ^= std::byte{0x40};
  };
}
/// Flips a bit of the payload of every chunk that begins at `offset`, however often it is asked for.
tampering flip_at(std::uint64_t offset) {
  return [offset](byte_vector& f) {
    if (kind_of(f) == tp::frame_kind::chunk &&
        tp::detail::payload_prefix::read(std::span<const std::byte, 80>(f.data(), 80))->offset == offset)
      f[tp::detail::payload_prefix::bytes + 5] ^= std::byte{0x40};
  };
}

TEST(ConsumersOverTheProtocol, A_chunk_that_is_wrong_is_never_added) {
  model good = numeric_model(), bad = numeric_model(), result = numeric_model();
  fill_values(good, 1), fill_values(bad, 2);
  auto buffers = *tp::chunk_buffers::make(256);
  using average_type = weighted_average<tp::partial_updates::divide_by_reached>;
  auto average = *average_type::make(result.destination(), buffers);
  {
    pair p;
    p.left.publish(good);
    average_type::update to(average, 1, {"good", 1});
    ASSERT_TRUE(pull<chunk_and_image_digest>(p, to, tp::fixed_bytes<256>{}));
  }
  const std::uint64_t wrong = (bad.schema().header_bytes + 900) / 256;
  pair p;
  p.left.publish(bad);
  p.owner_lies = flip_at(wrong * 256);
  average_type::update to(average, 3, {"bad", 1});
  const auto outcome = pull<chunk_and_image_digest>(p, to, tp::fixed_bytes<256>{});
  EXPECT_EQ(code_of(outcome), errc::chunk_digest_mismatch);
  const std::uint64_t added = average.find("bad")->added_bytes;
  EXPECT_LE(added, wrong * 256 - bad.schema().header_bytes);
  EXPECT_GT(added, wrong * 256 - bad.schema().header_bytes - 8);
  ASSERT_TRUE(average.finish());
  expect_mean(result, {{&good, 1}, {&bad, 3, added}});
}

TEST(ConsumersOverTheProtocol, An_owner_that_publishes_one_thing_and_sends_another_spoils_the_round) {
  model m = numeric_model(), result = numeric_model();
  fill_values(m, 1);
  auto buffers = *tp::chunk_buffers::make(256);
  auto average = *weighted_average<>::make(result.destination(), buffers);
  pair p;
  ASSERT_TRUE(p.left.references.publish(m.source(), version_of(m) + 1, true, {1, 2}, 1));
  update to(average, 1, {"10.1.2.3", 1});
  EXPECT_EQ((pull<chunk_and_image_digest>(p, to, tp::fixed_bytes<256>{}).error().code), errc::digest_mismatch);
  const auto spoiled = average.finish();
  ASSERT_EQ(code_of(spoiled), errc::digest_mismatch);
  EXPECT_EQ(spoiled.error().name.view(), "10.1.2.3");
  EXPECT_TRUE(result.untouched());
}

TEST(ConsumersOverTheProtocol, Staged_updates_need_no_digest_per_chunk) {
  using average_type = weighted_average<tp::partial_updates::staged>;
  model good = numeric_model(), bad = numeric_model(), result = numeric_model();
  fill_values(good, 1), fill_values(bad, 2);
  auto average = *average_type::make(result.destination());
  for (model* m : {&bad, &good}) {
    pair p;
    p.left.publish(*m);
    if (m == &bad) p.owner_lies = flip(9);
    average_type::update to(average, 2, {m == &bad ? "bad" : "good", 1});
    EXPECT_EQ(pull(p, to, tp::fixed_bytes<256>{}).has_value(), m == &good);
  }
  ASSERT_TRUE(average.finish());
  EXPECT_TRUE(result.same_tensors(good));
}

TEST(ConsumersOverTheProtocol, Another_model_is_refused_by_name_before_anything_is_added) {
  model m = numeric_model(), result = numeric_model(), other;
  other.add("tensor.F32", dtype::f32, {38}).ready();
  auto buffers = *tp::chunk_buffers::make(256);
  auto average = *weighted_average<>::make(result.destination(), buffers);
  pair p;
  p.left.publish(other);
  update to(average, 1, {"peer", 1});
  const auto outcome = pull<chunk_and_image_digest>(p, to, tp::fixed_bytes<256>{});
  ASSERT_EQ(code_of(outcome), errc::schema_mismatch);
  EXPECT_FALSE(outcome.error().name.empty());
  EXPECT_EQ(outcome.error().at, 0u);
  EXPECT_EQ(average.partial_update_count(), 0u);
}

TEST(ConsumersOverTheProtocol, Double_buffered_keeps_the_old_model_when_a_digest_is_wrong) {
  model a = mixed_model().fill(1), b = mixed_model();
  const model old = mixed_model().fill(1), next = mixed_model().fill(2);
  auto both = *tp::double_buffered::make(a.destination(), b.destination());
  for (const bool lie : {true, false}) {
    pair p;
    p.left.publish(next);
    if (lie) p.owner_lies = flip(10);
    EXPECT_EQ(pull(p, both, tp::fixed_bytes<256>{}).has_value(), !lie);
    EXPECT_TRUE(a.same_tensors(old));
    EXPECT_EQ(both.front_index(), lie ? 0u : 1u);
  }
  EXPECT_TRUE(b.same_tensors(next));
}

class FilesOverTheProtocol : public testing::Test {
 protected:
  byte_vector content() const {
    std::ifstream in(path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
  }
  std::string path() const { return folder / "model.safetensors"; }
  own_folder folder;
};

TEST_F(FilesOverTheProtocol, A_model_and_its_file_in_one_pull) {
  const model m = mixed_model().fill(1);
  model to = mixed_model();
  generator random(1);
  pair p({300, &random});
  p.left.publish(m);
  tp::land land(to.destination());
  auto file = tp::safetensors_file::create(path());
  ASSERT_TRUE(file);
  tp::tee both(land, *file);
  ASSERT_TRUE(pull(p, both, tp::bytes_up_to<5000>{777}));
  EXPECT_TRUE(to.same_tensors(m));
  EXPECT_EQ(content(), m.image_bytes());
}

TEST_F(FilesOverTheProtocol, Any_schema_and_its_digest) {
  const model m = mixed_model().fill(2);
  for (const bool lie : {true, false}) {
    pair p;
    p.left.publish(m);
    if (lie) p.owner_lies = flip(20);
    auto file = tp::safetensors_file::create(path());
    ASSERT_TRUE(file);
    tp::digest digest;
    tp::tee both(digest, *file);
    const auto done = pull(p, both, tp::fixed_bytes<256>{});
    EXPECT_EQ(done.has_value(), !lie);
    EXPECT_EQ(std::filesystem::exists(path()), !lie);
    EXPECT_EQ(digest.value() == version_of(m), !lie);
    EXPECT_EQ(p.left.status().completed, lie ? 0u : 1u);
  }
  EXPECT_EQ(content(), m.image_bytes());
}

TEST_F(FilesOverTheProtocol, A_file_that_cannot_be_finished_is_a_failure_of_the_transfer) {
  const model m = mixed_model().fill(3);
  pair p;
  p.left.publish(m);
  auto file = tp::safetensors_file::create(path());
  ASSERT_TRUE(file);
  std::filesystem::create_directory(path());
  const auto done = pull(p, *file, tp::fixed_bytes<256>{});
  ASSERT_EQ(code_of(done), errc::io);
  EXPECT_EQ(done.error().system, EISDIR);
  EXPECT_EQ(p.left.status().completed, 0u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), std::filesystem::directory_iterator()),
            1);
}

TEST_F(FilesOverTheProtocol, A_subset_becomes_a_file_of_its_own) {
  const model m = mixed_model().fill(4);
  model subset;
  subset.add("layers.0.bias", dtype::f32, {40}).add("scale", dtype::f16, {7, 3}).ready();
  const std::array<std::string_view, 2> names{"layers.0.bias", "scale"};
  pair p;
  p.left.publish(m);
  auto file = tp::safetensors_file::create(path(), {.schema = &subset.schema()});
  ASSERT_TRUE(file);
  const auto done = pull(p, *file, tp::fixed_bytes<64>{}, {.ref = {1, 2}, .subset = names});
  ASSERT_TRUE(succeeded(done));
  model expected;
  expected.add("layers.0.bias", dtype::f32, {40}).add("scale", dtype::f16, {7, 3}).ready();
  std::memcpy(expected.destination().address(0), m.bytes_of("layers.0.bias").data(), 160);
  std::memcpy(expected.destination().address(1), m.bytes_of("scale").data(), 42);
  EXPECT_EQ(content(), expected.image_bytes());
}

}  // namespace transfers_test
