// Every limit at its edges: the least and the greatest value that a limits policy may have, each in a pipeline that
// pulls a whole model, tensors by name, and a model whose schema is another one.
#include <tensorpull/protocol/owner/owner.hpp>
#include <tensorpull/tensorpull.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace limits_test {

using namespace tensorpull;
using ms = std::chrono::milliseconds;
using usual = default_limits;

struct values {
  std::size_t control = usual::control_frame_bytes, page = usual::page_bytes, segments = usual::control_frame_segments,
              words = usual::traversal_words;
  int levels = usual::nesting_levels;
  std::size_t body = usual::application_body_bytes, in_message = usual::application_references,
              unread = usual::unread_messages;
  std::uint64_t cap = usual::chunk_cap_bytes;
  std::size_t references = usual::references, of_session = usual::session_references, recipients = usual::recipients,
              transfers = usual::transfers_per_connection, tensors = usual::tensors,
              requests = usual::pipelined_requests;
  std::uint64_t subset_rate = usual::subset_bytes_per_second, chunk_rate = usual::chunk_digest_bytes_per_second;
  std::size_t jobs = usual::digest_jobs;
  int busy_ms = 100;
  std::size_t window = usual::window;
};
template <values V>
struct edge : default_limits {
  static constexpr values at = V;
  static constexpr std::size_t control_frame_bytes = V.control, page_bytes = V.page,
                               control_frame_segments = V.segments, traversal_words = V.words;
  static constexpr int nesting_levels = V.levels;
  static constexpr std::size_t application_body_bytes = V.body, application_references = V.in_message,
                               unread_messages = V.unread;
  static constexpr std::uint64_t chunk_cap_bytes = V.cap;
  static constexpr std::size_t references = V.references, session_references = V.of_session, recipients = V.recipients,
                               transfers_per_connection = V.transfers, tensors = V.tensors,
                               pipelined_requests = V.requests;
  static constexpr std::uint64_t subset_bytes_per_second = V.subset_rate, chunk_digest_bytes_per_second = V.chunk_rate;
  static constexpr std::size_t digest_jobs = V.jobs;
  static constexpr ms busy_delay{V.busy_ms};
  static constexpr std::size_t window = V.window;
};

// One step beyond an edge is refused with a sentence (tests/compile_fail/limits.cpp).
static_assert(!limits_policy<edge<values{.control = 159}>> && !limits_policy<edge<values{.control = 65'537}>> &&
              !limits_policy<edge<values{.page = 7}>> && !limits_policy<edge<values{.levels = 4}>>);

using edges = testing::Types<
    edge<values{}>, edge<values{.control = 160, .page = 160}>, edge<values{.control = 160}>, edge<values{.page = 160}>,
    edge<values{.page = 8}>, edge<values{.control = 65'536, .page = 65'536}>, edge<values{.segments = 1}>,
    edge<values{.words = 1}>, edge<values{.levels = 5}>, edge<values{.body = 0, .in_message = 0, .unread = 1}>,
    edge<values{.cap = 1}>, edge<values{.cap = ~std::uint64_t{0}}>,
    edge<values{.references = 1, .of_session = 1, .recipients = 1, .transfers = 1, .jobs = 1}>,
    edge<values{.tensors = 40}>, edge<values{.requests = 1}>, edge<values{.requests = 16'384}>,
    edge<values{.subset_rate = 0, .chunk_rate = 0}>, edge<values{.busy_ms = 0}>, edge<values{.window = 1}>>;

template <class L>
class Limits : public testing::Test {};
TYPED_TEST_SUITE(Limits, edges);

/// Forty tensors; `first` to `last` of them, of which one has another shape.
struct model {
  explicit model(int first = 0, int last = 40, int other = -1) {
    for (int i = first; i < last; ++i) names.push_back("layer" + std::to_string(i) + ".weight");
    data.resize(names.size(), std::vector<float>(64));
    for (std::size_t i = 0; i < names.size(); ++i)
      views.push_back({names[i], dtype::f32, static_cast<int>(i) == other ? changed : shape,
                       reinterpret_cast<std::byte*>(data[i].data())});
  }
  dynamic_image image() const { return std::move(*dynamic_image::make(std::span(views))); }
  static constexpr std::uint64_t flat[] = {64}, square[] = {32, 2};
  static constexpr std::span<const std::uint64_t> shape{flat}, changed{square};
  std::vector<std::string> names;
  std::vector<std::vector<float>> data;
  std::vector<mutable_tensor_view> views;
};

TYPED_TEST(Limits, A_pull_works_at_the_edge_or_says_what_is_in_its_way) {
  using net = pipeline<tensor_list, fixed_bytes<1024>, loopback, TypeParam>;
  model source, mine, few(3, 5), other(0, 40, 20);
  for (std::size_t i = 0; i < source.data.size(); ++i) std::fill_n(source.data[i].begin(), 64, static_cast<float>(i));
  auto published = source.image(), all = mine.image(), some = few.image(), wrong = other.image();
  typename net::downloader owner;
  const auto ref = owner.add_tensors(published);
  ASSERT_TRUE(ref);

  const auto whole = net::download_tensors(owner, *ref, all);
  ASSERT_TRUE(whole) << describe(whole.error());
  EXPECT_EQ(mine.data, source.data);

  const auto by_name = net::download_tensors(owner, *ref, some, {.part = true, .retry = {.retries = 0}});
  if (TypeParam::subset_bytes_per_second == 0) {
    EXPECT_EQ(by_name.error(), errc::unsupported_request);
  } else if (TypeParam::page_bytes < 152) {
    EXPECT_EQ(by_name.error(), errc::does_not_fit);
    EXPECT_EQ(by_name.error().name.view(), "layer3.weight");
  } else {
    ASSERT_TRUE(by_name) << describe(by_name.error());
    EXPECT_TRUE(std::equal(few.data.begin(), few.data.end(), source.data.begin() + 3));
  }

  const auto differs = net::download_tensors(owner, *ref, wrong, {.retry = {.retries = 0}});
  EXPECT_EQ(differs.error(), errc::schema_mismatch) << describe(differs.error());
  if (TypeParam::page_bytes >= 1000 && TypeParam::control_frame_bytes >= 1000) {
    EXPECT_EQ(differs.error().name.view(), "layer20.weight");
  }
}

template <class L>
std::uint32_t described_window() {
  owner_storage<1, 1> storage;
  owner<xxhash_digest, L> of(storage, [n = std::uint64_t{0}]() mutable { return ++n; });
  model source;
  const auto image = source.image();
  EXPECT_TRUE(of.publish(image.source(), 77, false, {1, 2}, 0u));
  typename owner<xxhash_digest, L>::peer asks;
  frame asked;
  asked.kind = frame_kind::describe;
  asked.id = 1;
  asked.ref = {1, 2};
  pending_reply reply;
  EXPECT_TRUE(of.handle(asks, asked, reply) && of.pin(reply) != nullptr);
  const std::uint32_t window = of.expand(reply).window;
  of.unpin(reply, 0);
  of.forget(asks);
  return window;
}
TEST(LimitsOfAWindow, A_description_has_the_lesser_number_and_never_0) {
  EXPECT_EQ((described_window<edge<values{.requests = 1}>>()), 1u);
  EXPECT_EQ((described_window<edge<values{.window = 3}>>()), 3u);
  EXPECT_EQ((described_window<edge<values{.requests = 65'535, .window = 1 << 17}>>()), 65'535u);
  EXPECT_EQ((described_window<edge<values{.requests = 65'536, .window = 1 << 17}>>()), 65'535u);
}

}  // namespace limits_test
