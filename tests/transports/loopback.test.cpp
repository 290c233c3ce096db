// Owner and recipient in one process.
#include "network.hpp"

#include <tensorpull/consumers/any_schema/digest.hpp>

#include <functional>

namespace loopback_test {

using namespace test;

template <class Model, class Integrity, class Chunking>
void expect_download(Chunking cut, std::uint64_t chunks) {
  using net = tp::pipeline<tp::loopback, tp::raw_tensors<Model>, Chunking, Integrity>;
  const auto owner = std::make_unique<typename net::downloader>();
  const auto source = random_model<Model>(1), mine = blank<Model>();
  const auto ref = owner->add_tensors(*source, {.recipients = 1});
  ASSERT_TRUE(ref);
  const auto done = net::download_tensors(*owner, *ref, *mine, {}, cut);
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*source, *mine));
  EXPECT_EQ(done->outcome, Integrity::whole ? tp::outcome::completed : tp::outcome::completed_unverified);
  EXPECT_EQ(done->chunks, chunks);
  EXPECT_EQ(done->bytes, tp::raw_tensors<Model>::schema().image_bytes);
  EXPECT_EQ(done->version, ref->version);
  EXPECT_TRUE(owner->settled(*ref));
  const auto status = owner->status_of(*ref);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->acquired, 1u);
  EXPECT_EQ(status->completed, Integrity::whole ? 1u : 0u);
  EXPECT_EQ(status->final(), 1u);
  EXPECT_EQ(status->bytes_sent, done->bytes);
}
template <class Model, class Chunking>
void expect_downloads(Chunking cut, std::uint64_t chunks) {
  expect_download<Model, tp::image_digest>(cut, chunks);
  expect_download<Model, tp::chunk_digest>(cut, chunks);
  expect_download<Model, tp::chunk_and_image_digest>(cut, chunks);
  expect_download<Model, tp::unverified>(cut, chunks);
}
template <class Model>
constexpr std::uint64_t chunks_of(std::uint64_t bytes) {
  return (tp::raw_tensors<Model>::schema().image_bytes + bytes - 1) / bytes;
}
/// Half of what is left, by a length of the image that is not known when the first chunk is asked for.
struct halves {
  using is_chunking_policy = void;
  static constexpr std::uint64_t max_chunk_bytes = 64_KiB;
  static constexpr bool needs_layout = false;
  static std::uint64_t next(std::uint64_t offset, const tp::chunk_context& c) noexcept {
    const std::uint64_t left = c.image_bytes - offset;
    return std::clamp(left / 2, std::min<std::uint64_t>(left, 8), max_chunk_bytes);
  }
};
TEST(Loopback, A_chunking_may_look_at_what_is_known_of_the_image) {
  const std::uint64_t bytes = tp::raw_tensors<mlp>::schema().image_bytes;
  std::uint64_t chunks = 1;
  for (std::uint64_t at = halves::max_chunk_bytes; at < bytes; ++chunks) at += halves::next(at, {bytes});
  expect_download<mlp, tp::chunk_and_image_digest>(halves{}, chunks);
  expect_download<tiny, tp::image_digest>(halves{}, 1);
}
TEST(Loopback, Every_integrity_policy_with_every_chunking) {
  expect_downloads<tiny>(tp::fixed_bytes<8>{}, chunks_of<tiny>(8));
  expect_downloads<mlp>(tp::fixed_bytes<1000>{}, chunks_of<mlp>(1000));
  expect_downloads<mlp>(tp::fixed_bytes<2_MiB>{}, 1);
  expect_downloads<mlp>(tp::bytes_up_to<1_MiB>{777}, chunks_of<mlp>(777));
  // the header and three short tensors are a chunk each
  expect_downloads<mlp>(tp::per_tensor<4096>{}, 4 + sizeof(dense::w) / 4096);
  expect_downloads<mlp>(tp::per_tensor<2_MiB>{}, 5);
  expect_downloads<mlp>(tp::whole{}, 1);
}

using net = tp::pipeline<tp::loopback, tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>>;

/// Acts in the middle of a chunk's delivery.
struct meddler : tp::land {
  std::function<void()> act;
  meddler(mlp& m, std::function<void()> f) : tp::land(tp::raw_tensors<mlp>::destination(m)), act(std::move(f)) {}
  tp::result<void> chunk(std::uint64_t offset, std::uint64_t) noexcept {
    if (offset == 3 * 64_KiB) act();
    return {};
  }
};
/// Acts between two chunks: once, when the sixth is cut.
struct meddling_cut {
  using is_chunking_policy = void;
  static constexpr std::uint64_t max_chunk_bytes = 64_KiB;
  static constexpr bool needs_layout = false;
  std::function<void()>* act = nullptr;
  std::uint64_t next(std::uint64_t offset, const tp::chunk_context& c) const noexcept {
    if (offset == 5 * 64_KiB && act != nullptr && *act) std::exchange(*act, nullptr)();
    return std::min(max_chunk_bytes, c.image_bytes - offset);
  }
};
using cut_net = tp::pipeline<tp::loopback, tp::raw_tensors<mlp>, meddling_cut>;

TEST(Loopback, C2_WithdrawingBetweenTwoChunksEndsTheTransfer) {
  for (const bool kept : {false, true}) {
    const auto owner = std::make_unique<cut_net::downloader>();
    const auto source = random_model<mlp>(1), mine = blank<mlp>();
    const auto ref = kept ? *owner->add_tensors(random_model<mlp>(1), {.recipients = 1})
                          : *owner->add_tensors(*source, {.recipients = 1});
    std::function<void()> act = [&] { EXPECT_TRUE(owner->withdraw(ref, 7)); };
    const auto done = cut_net::download_tensors(*owner, ref, *mine, {.window = 1}, {&act});
    ASSERT_FALSE(done);
    EXPECT_FALSE(act) << "it was done in the middle";
    EXPECT_EQ(code_of(done), errc::withdrawn);
    EXPECT_EQ(done.error().system, 7) << "the program's reason";
    EXPECT_EQ(done.error().at, 5 * 64_KiB);
    EXPECT_EQ(owner->status_of(ref)->completed, 0u);
    const auto late = cut_net::download_tensors(*owner, ref, *mine);
    EXPECT_EQ(code_of(late), errc::withdrawn);
    EXPECT_EQ(late.error().system, 7);
  }
}
TEST(Loopback, C3_PublishingAgainBetweenTwoChunksIsStaleAndNeverAMix) {
  for (const std::uint32_t window : {1u, 4u}) {
    const auto owner = std::make_unique<cut_net::downloader>();
    const auto source = random_model<mlp>(1), other = random_model<mlp>(2), mine = blank<mlp>();
    const auto ref = *owner->add_tensors(*source, {.id = {3, 4}});
    std::function<void()> act = [&] { EXPECT_TRUE(owner->add_tensors(*other, {.id = {3, 4}})); };
    const auto done = cut_net::download_tensors(*owner, ref, *mine, {.window = window}, {&act});
    ASSERT_FALSE(done);
    EXPECT_FALSE(act);
    EXPECT_EQ(code_of(done), errc::stale_version);
    EXPECT_EQ(code_of(cut_net::download_tensors(*owner, ref, *mine)), errc::stale_version);
    ASSERT_TRUE(cut_net::download_tensors(*owner, ref.id, *mine));
    EXPECT_TRUE(same(*mine, *other));
  }
}
// A callback runs while the memory behind its chunk is read: there, waiting for the end of the reading would be for
// ever.
TEST(Loopback, C2_WithdrawingOrPublishingAgainFromACallbackIsBusyAndChangesNothing) {
  for (const bool again : {false, true})
    for (const bool kept : {false, true}) {
      const auto owner = std::make_unique<net::downloader>();
      const auto source = random_model<mlp>(1), other = random_model<mlp>(2), mine = blank<mlp>();
      const tp::publish_options options{.id = {3, 4}};
      const auto ref = kept ? *owner->add_tensors(random_model<mlp>(1), options)
                            : *owner->add_tensors(*source, options);
      int acted = 0;
      meddler to(*mine, [&] {
        ++acted;
        EXPECT_EQ(again ? code_of(owner->add_tensors(*other, options)) : code_of(owner->withdraw(ref)), errc::busy);
      });
      const auto done = net::pull(*owner, ref, to);
      ASSERT_TRUE(succeeded(done));
      EXPECT_EQ(acted, 1);
      EXPECT_EQ(done->version, ref.version);
      EXPECT_TRUE(same(*mine, *source));
      ASSERT_TRUE(owner->withdraw(ref)) << "nobody reads it now";
      EXPECT_EQ(code_of(net::download_tensors(*owner, ref, *mine)), errc::withdrawn);
    }
}
TEST(Loopback, Abort_is_heard) {
  const auto owner = std::make_unique<net::downloader>();
  const auto source = random_model<mlp>(1), mine = blank<mlp>();
  const auto ref = *owner->add_tensors(*source, {.recipients = 1});
  std::stop_source stop;
  meddler to(*mine, [&] { stop.request_stop(); });
  EXPECT_EQ(code_of(net::pull(*owner, ref, to, {.stop = stop.get_token()})), errc::cancelled);
  EXPECT_EQ(owner->status_of(ref)->cancelled, 1u) << "the owner hears of it";
  EXPECT_TRUE(owner->settled(ref));
}
TEST(Loopback, A_reference_states_the_schema_for_a_consumer_of_any) {
  const auto owner = std::make_unique<net::downloader>();
  const auto source = random_model<mlp>(1), mine = blank<mlp>();
  const auto ref = *owner->add_tensors(*source);
  tp::digest any;
  EXPECT_TRUE(net::pull(*owner, ref, any));
  tp::reference wrong{ref.id, 0, ref.fingerprint ^ 1};
  tp::digest other;
  const auto done = net::pull(*owner, wrong, other);
  ASSERT_EQ(code_of(done), errc::schema_mismatch);
  EXPECT_EQ(done.error().at, 0u);
  EXPECT_TRUE(net::download_tensors(*owner, wrong, *mine)) << "a model has a schema of its own, which is compared";
}
TEST(Loopback, The_table_of_references_has_an_end) {
  const auto owner = std::make_unique<net::downloader>();
  const auto source = random_model<mlp>(1);
  for (std::size_t i = 0; i < tp::default_limits::references; ++i) ASSERT_TRUE(owner->add_tensors(*source));
  EXPECT_EQ(code_of(owner->add_tensors(*source)), errc::table_full);
}


/// A hash of the user's that is only made explicitly.
struct explicit_hash : tp::xxhash_digest {
  explicit explicit_hash() = default;
};
TEST(Loopback, A_users_hash_needs_no_more_than_its_concept_says) {
  using checked = raw_net<mlp, tp::loopback, tp::basic_chunk_and_image_digest<explicit_hash>>;
  const auto owner = std::make_unique<checked::downloader>();
  const auto source = random_model<mlp>(1), mine = blank<mlp>();
  const auto ref = *owner->add_tensors(*source);
  EXPECT_TRUE(checked::download_tensors(*owner, ref, *mine));
  EXPECT_TRUE(same(*mine, *source));
}

/// A digest of chunks that is this program's own.
struct sum_of_bytes {
  static constexpr auto kind = static_cast<tp::digest_kind>(128);
  void update(const_byte_span bytes) noexcept {
    for (const std::byte b : bytes) sum = sum * 31 + std::to_integer<std::uint64_t>(b);
  }
  std::uint64_t digest() const noexcept { return sum; }
  std::uint64_t sum = 0;
};
struct summed : tp::image_digest {
  using chunk_hash_type = sum_of_bytes;
  static constexpr bool per_chunk = true;
};
TEST(Loopback, A_digest_of_a_programs_own_has_a_kind_of_its_own_and_an_owner_that_lacks_it_says_so) {
  static_assert(tp::chunk_digest_kind<summed> == sum_of_bytes::kind);
  using checked = raw_net<mlp, tp::loopback, summed>;
  const auto source = random_model<mlp>(1), mine = blank<mlp>();
  const auto owner = std::make_unique<checked::downloader>();
  EXPECT_TRUE(checked::download_tensors(*owner, *owner->add_tensors(*source), *mine));
  EXPECT_TRUE(same(*mine, *source));
  const auto other = std::make_unique<net::downloader>();
  EXPECT_EQ(code_of(checked::download_tensors(*other, *other->add_tensors(*source), *mine)), errc::unsupported_request);
}

TEST(Loopback, Any_number_of_recipients_is_told_of_one_after_the_other) {
  int completed = 0;
  auto tell = [&](const tp::progress_event& e) { completed += e.phase == tp::progress_phase::completed; };
  const auto owner = std::make_unique<net::downloader>();
  const auto source = random_model<mlp>(1), mine = blank<mlp>();
  const auto ref = *owner->add_tensors(*source, {.progress = tell});  // their number is not known
  for (int i = 1; i <= 200; ++i) {  // more than it has records for
    ASSERT_TRUE(net::download_tensors(*owner, ref, *mine)) << i;
    ASSERT_EQ(completed, i);
  }
}

}  // namespace loopback_test
