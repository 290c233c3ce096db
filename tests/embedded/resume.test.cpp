// Power cuts: what a landing keeps, the next program goes on with, if it is what it says.
#include "embedded/small_pair.hpp"

namespace resume_test {

using namespace test;

/// Memory that outlives its program.
struct kept {
  using image = tp::embedded_image<net>;
  tp::result<void> write(std::uint32_t at, const_byte_span bytes) noexcept {
    EXPECT_LE(bytes.size(), 64u);
    EXPECT_LE(at + bytes.size(), data.size());
    EXPECT_TRUE(at == next || at == 0) << "in order";
    if (writes++ == fails_at) return tp::failure(errc::io, 0, {}, 5);
    std::copy(bytes.begin(), bytes.end(), data.begin() + at);
    next = at + static_cast<std::uint32_t>(bytes.size());
    return {};
  }
  tp::result<void> read(std::uint32_t at, byte_span out) noexcept {
    EXPECT_LE(at + out.size(), data.size());
    if (unreadable) return tp::failure(errc::io);
    std::copy_n(data.begin() + at, out.size(), out.begin());
    return {};
  }
  tp::resume_cursor cursor() noexcept { return saved; }
  tp::result<void> save(const tp::resume_cursor& c) noexcept {
    if (saves++ == full_at) return tp::failure(errc::disk_full);
    saved = c;
    return {};
  }
  byte_vector data = byte_vector(image::data_bytes);
  tp::resume_cursor saved;
  std::uint32_t next = 0;
  std::uint64_t writes = 0, saves = 0, fails_at = ~std::uint64_t{0}, full_at = ~std::uint64_t{0};
  bool unreadable = false;
};
static_assert(tp::lasting_landing<kept> && !tp::lasting_landing<tp::model_landing<net>>);

using program = tp::embedded_recipient<kept, 64>;

struct CutTest : testing::Test {
  /// One program; it ends, or the power does when `cut()` says so.
  template <class Cut>
  tp::result<tp::receipt> start(Cut cut) {
    landing.next = landing.saved.offset > kept::image::header_bytes
                       ? static_cast<std::uint32_t>(landing.saved.offset) - kept::image::header_bytes
                       : 0;
    program r(landing, net_pull, pair.dice());
    pair.run_until(r, [&] { return cut(r); });
    pair.on_its_way.clear();
    return r.ended() ? r.outcome() : tp::result<tp::receipt>(tp::failure(errc::cancelled, r.landed_bytes()));
  }
  tp::result<tp::receipt> start() {
    return start([](const program&) { return false; });
  }
  std::uint64_t sent() { return pair.status().bytes_sent; }

  small_pair pair;
  model source = fill(list_of<net>(), 1);
  kept landing;
  static constexpr std::uint64_t image = kept::image::image_bytes, header = kept::image::header_bytes;
};

TEST_F(CutTest, The_cursor_is_kept_once_for_each_chunk) {
  pair.left->publish(source);
  ASSERT_TRUE(start());
  EXPECT_EQ(landing.writes, (image - header + 63) / 64);
  EXPECT_EQ(landing.saves, (header + 63) / 64 + landing.writes);
  EXPECT_EQ(landing.saved.offset, image);
  EXPECT_EQ(landing.saved.digest, version_of(source));
}
TEST_F(CutTest, A_cursor_or_bytes_that_are_wrong_begin_at_the_start) {
  pair.left->publish(source);
  (void)start([](const program& r) { return r.landed_bytes() > 1'500; });
  const kept good = landing;
  ASSERT_GT(good.saved.offset, 1'500u);
  const auto before = sent();
  (void)start([&](const program& r) { return r.total_bytes() > 0; });
  landing = good;
  for (int how = 0; how < 10; ++how) {
    SCOPED_TRACE(how);
    landing = good;
    auto& c = landing.saved;
    if (how == 0) landing.data[100] ^= std::byte{1};
    if (how == 1) c.digest ^= 1;
    if (how == 2) c.offset += 8;
    if (how == 3) c.offset = image + 1;
    if (how == 4) c.offset = ~std::uint64_t{0};
    if (how == 5) c.offset = header;
    if (how == 6) c.offset += std::uint64_t{1} << 32;
    if (how == 7) c.version ^= 1;
    if (how == 8) c.fingerprint ^= 1;
    if (how == 9) landing.unreadable = true;
    const auto so_far = sent();
    const auto done = start();
    ASSERT_TRUE(succeeded(done));
    EXPECT_EQ(landing.data, data_of(source));
    EXPECT_EQ(sent() - so_far, image);
  }
  landing = good;
  const auto so_far = sent();
  ASSERT_TRUE(start());
  EXPECT_EQ(sent() - so_far, image - good.saved.offset) << "and the right one does not";
  EXPECT_GT(before, 0u);
}
TEST_F(CutTest, Cut_behind_the_confirmation_it_learns_that_it_is_final) {
  for (const int how : {0, 1, 2}) {
    pair = small_pair({}, 5);
    landing = {};
    pair.left->publish(source, {1, 2}, 1);
    bool heard = false;
    pair.meddle = [&](byte_span d, bool down) { return !(heard = heard || (down && d[20] == std::byte{6})); };
    (void)start([&](const program&) { return heard; });
    pair.meddle = {};
    ASSERT_TRUE(heard);
    if (how == 1) landing.data[5] ^= std::byte{1};
    if (how == 2) landing.saved.ref.low ^= 1;
    const auto done = start();
    if (how != 0) {
      EXPECT_EQ(code_of(done), errc::already_final) << "what is here may not be what was confirmed";
      continue;
    }
    ASSERT_TRUE(confirmed(done));
    EXPECT_EQ(done->version, version_of(source));
    EXPECT_EQ(done->bytes, image);
  }
}
TEST_F(CutTest, Wrong_bytes_are_not_kept_as_right_ones) {
  ASSERT_TRUE(pair.left->references.publish(source.source(), version_of(source) ^ 1, true, {1, 2}, 2));
  for (int i = 0; i < 2; ++i) {
    const auto before = sent();
    const auto done = start();
    EXPECT_EQ(code_of(done), errc::digest_mismatch);
    EXPECT_EQ(sent() - before, image) << "the second begins at the start";
  }
}
TEST_F(CutTest, A_landing_that_fails_ends_the_transfer_by_name) {
  pair.left->publish(source, {1, 2}, 2);
  landing.fails_at = 3;
  const auto written = start();
  EXPECT_EQ(code_of(written), errc::io);
  EXPECT_EQ(written.error().system, 5);
  EXPECT_EQ(written.error().at, header + 3 * 64);
  EXPECT_EQ(pair.status().cancelled, 1u);
  landing = {};
  landing.full_at = 2;
  EXPECT_EQ(code_of(start()), errc::disk_full);
  landing = {};
  EXPECT_TRUE(start());
}

}  // namespace resume_test
