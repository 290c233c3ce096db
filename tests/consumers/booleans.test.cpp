// A member of type bool holds 0 or 1, whatever an owner sends.

#include "../support/threads.hpp"
#include "support/results.hpp"

#include <tensorpull/consumers/double_buffered.hpp>
#include <tensorpull/tensorpull.hpp>

#include <gtest/gtest.h>
#include <boost/hana/adapt_struct.hpp>

#include <cstring>
#include <thread>

#include <sys/socket.h>

struct masked_model {
  float w[5];
  bool used;
  bool mask[300];
};
BOOST_HANA_ADAPT_STRUCT(masked_model, w, used, mask);

namespace booleans_test {

using namespace std::chrono_literals;
using namespace tensorpull;
using test::code_of;
using policy = raw_tensors<masked_model>;

/// What an owner publishes whose memory has bytes in place of our bools.
class bytes_for_bools {
 public:
  bytes_for_bools() {
    used_.push_back(1);
    mask_.assign(300, 0);
    for (std::size_t i = 0; i < mask_.size(); i += 3) mask_[i] = 1;
    const auto bytes = [](auto& v) { return reinterpret_cast<std::byte*>(v.data()); };
    const tensor_view views[] = {{"w", dtype::f32, five_, bytes(w_)},
                                 {"used", dtype::boolean, {}, bytes(used_)},
                                 {"mask", dtype::boolean, many_, bytes(mask_)}};
    image_.push_back(std::move(*dynamic_image::make(views)));
  }
  std::vector<std::uint8_t>& mask() { return mask_; }
  const dynamic_image& image() const { return image_.front(); }

 private:
  static constexpr std::uint64_t five_[] = {5}, many_[] = {300};
  std::vector<float> w_ = {1, 2, 3, 4, 5};
  std::vector<std::uint8_t> used_, mask_;
  std::vector<dynamic_image> image_;
};

/// Looks at the bytes: to read another value as a bool would be undefined.
void expect_bools(const masked_model& m) {
  unsigned char bytes[sizeof m.mask + 1];
  std::memcpy(bytes, m.mask, sizeof m.mask);
  std::memcpy(bytes + sizeof m.mask, &m.used, 1);
  for (std::size_t i = 0; i < sizeof bytes; ++i) ASSERT_LE(bytes[i], 1) << i;
}

template <class Chunking, class Integrity>
result<receipt> pull_from(const bytes_for_bools& from, masked_model& mine, Chunking chunking, Integrity) {
  using lists = pipeline<tensor_list, Chunking, loopback, Integrity>;
  const auto owner = std::make_unique<typename lists::downloader>();
  const auto ref = owner->add_tensors(from.image());
  land to(policy::destination(mine));
  return lists::pull(*owner, *ref, to, {}, chunking);
}

TEST(Booleans, A_bool_that_is_neither_0_nor_1_fails_by_name_wherever_chunks_end) {
  bytes_for_bools from;
  for (const std::size_t place : {std::size_t{0}, std::size_t{1}, std::size_t{150}, std::size_t{299}})
    for (const int wrong : {2, 128, 255}) {
      const auto before = std::exchange(from.mask()[place], static_cast<std::uint8_t>(wrong));
      const auto check = [&](const auto& chunking, const auto& integrity) {
        masked_model mine{};
        const auto got = pull_from(from, mine, chunking, integrity);
        ASSERT_EQ(code_of(got), errc::value_out_of_range) << place;
        EXPECT_EQ(got.error().name.view(), "mask");
        EXPECT_EQ(got.error().at, from.image().schema().image_bytes) << "all had landed";
        expect_bools(mine);
      };
      check(fixed_bytes<64 * 1024>{}, image_digest{});
      check(fixed_bytes<8>{}, image_digest{});
      check(fixed_bytes<64>{}, chunk_and_image_digest{});
      check(fixed_bytes<64>{}, unverified{});
      from.mask()[place] = before;
    }
  masked_model mine{};
  EXPECT_TRUE(pull_from(from, mine, fixed_bytes<8>{}, image_digest{}));
  EXPECT_TRUE(mine.used && mine.mask[0] && !mine.mask[1] && mine.mask[297] && mine.w[4] == 5);
}
TEST(Booleans, Of_a_pull_that_stops_half_way_are_those_of_their_type) {
  bytes_for_bools from;
  from.mask().assign(300, 77);
  masked_model mine{};
  land to(policy::destination(mine));
  const auto& schema = from.image().schema();
  description d;
  d.image_bytes = schema.image_bytes;
  d.data_start = schema.header_bytes;
  ASSERT_TRUE(to.begin(d));
  std::span<std::byte> out[4];
  for (std::uint64_t at = schema.header_bytes; at < schema.image_bytes - 100;) {
    const auto p = to.prepare(at, schema.image_bytes - 100 - at, out);
    for (std::size_t i = 0; i < p.pieces; ++i) std::memset(out[i].data(), 77, out[i].size());
    for (std::uint64_t done = 0, i = 0; i < p.pieces; done += out[i++].size())
      ASSERT_TRUE(to.commit(at + done, out[i]));
    at += p.bytes;
  }
  to.abandon({errc::connection_lost, 0, 0, {}});
  expect_bools(mine);
}
TEST(Booleans, Of_a_second_model_leave_the_first_in_its_place) {
  bytes_for_bools from;
  from.mask()[17] = 3;
  masked_model front{}, back{};
  front.w[0] = 7;
  auto both = *double_buffered::make(policy::destination(front), policy::destination(back));
  using lists = pipeline<tensor_list, fixed_bytes<64>, loopback>;
  const auto owner = std::make_unique<lists::downloader>();
  const auto ref = owner->add_tensors(from.image());
  const auto got = lists::pull(*owner, *ref, both);
  EXPECT_EQ(code_of(got), errc::value_out_of_range);
  EXPECT_EQ(both.front_index(), 0u);
  EXPECT_EQ(front.w[0], 7);
  expect_bools(back);
}
TEST(Booleans, Of_a_session_are_checked_too) {
  bytes_for_bools from;
  from.mask()[299] = 2;
  int fd[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
  auto theirs = pipeline<tensor_list, fixed_bytes<64>, tcp>::session::over(posix_stream(fd[0]));
  auto mine = pipeline<policy, fixed_bytes<64>, tcp>::session::over(posix_stream(fd[1]));
  ASSERT_TRUE(theirs && mine);
  const auto ref = theirs->add_image(from.image().source(), {.recipients = 1});
  ASSERT_TRUE(ref);
  test::joined_thread serving(
      [&] { EXPECT_EQ(code_of(theirs->serve(until_settled(*ref), 60s)), errc::not_delivered); });
  masked_model model{};
  const auto got = mine->download_tensors(*ref, model);
  ASSERT_EQ(code_of(got), errc::value_out_of_range);
  EXPECT_EQ(got.error().name.view(), "mask");
  expect_bools(model);
  serving.join();
  EXPECT_EQ(theirs->status_of(*ref)->cancelled, 1u) << "the owner hears that it did not end well";
}

}  // namespace booleans_test
