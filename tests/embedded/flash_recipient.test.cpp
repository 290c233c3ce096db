// A whole pull into flash, from an unmodified endpoint of hosts, with power cuts.
#include "embedded/simulated_flash.hpp"
#include "embedded/small_pair.hpp"

#include <tensorpull/embedded/flash_landing.hpp>

namespace flash_recipient_test {

using namespace test;

using image = tp::embedded_image<net>;
constexpr std::uint32_t chunk = 40, first_page = 2;

template <class Flash>
struct device {
  using landing_type = tp::flash_landing<image, Flash>;
  explicit device(std::uint64_t seed) : flash(first_page + landing_type::pages, seed) {}

  /// One program: it pulls until it has ended or the power goes.
  tp::result<tp::receipt> start(small_pair& pair) {
    landing_type landing(flash, first_page);
    tp::embedded_recipient<landing_type, chunk> program(landing, net_pull, pair.dice());
    pair.run_until(program, [this] { return !flash.on(); });
    pair.on_its_way.clear();
    return flash.on() ? program.outcome() : tp::result<tp::receipt>(tp::failure(errc::cancelled));
  }
  bool empty() { return !landing_type(flash, first_page).cursor(); }
  bool valid() { return landing_type(flash, first_page).valid(); }
  std::uint64_t finished() { return landing_type(flash, first_page).finished(); }
  bool holds(const model& m) {
    const auto data = data_of(m);
    return std::equal(data.begin(), data.end(),
                      flash.bytes().begin() + static_cast<std::ptrdiff_t>((first_page + 2) * Flash::page_bytes));
  }
  Flash flash;
};
static_assert(tp::lasting_landing<tp::flash_landing<image, simulated_flash<256, 4>>>);

template <class Flash>
struct FlashRecipient : testing::Test {
  std::uint64_t sent() { return pair.status().bytes_sent; }
  small_pair pair;
  model source = fill(list_of<net>(), 1);
};
using flashes =
    testing::Types<simulated_flash<256, 4>, simulated_flash<128, 16>, simulated_flash<128, 8, flash_kind::ecc>>;
TYPED_TEST_SUITE(FlashRecipient, flashes);

TYPED_TEST(FlashRecipient,
           A_pull_goes_on_after_a_power_cut_at_any_operation_and_fetches_one_chunk_or_page_again_at_most) {
  generator random(3);
  std::uint64_t cuts = 0, went_on = 0;
  for (const power_cut kind : {power_cut::before, power_cut::within, power_cut::after})
    for (std::uint64_t at = 0;; ++at) {
      SCOPED_TRACE(at);
      this->pair = small_pair({}, at + 1);
      this->pair.left->publish(this->source, {1, 2}, 1);
      device<TypeParam> d(at);
      d.flash.cut_after(at, kind);
      std::uint64_t again = 0, here = 0;
      auto done = d.start(this->pair);
      for (; !d.flash.on(); done = d.start(this->pair), ++here) {
        d.flash.restart();
        again += TypeParam::programs_once ? TypeParam::page_bytes : chunk;  // what was under way
        went_on += !d.empty();
        if (here < 2) d.flash.cut_after(random.below(30), static_cast<power_cut>(random.below(3)));
      }
      ASSERT_TRUE(confirmed(done));
      EXPECT_TRUE(d.holds(this->source));
      EXPECT_TRUE(d.valid());
      EXPECT_EQ(d.finished(), version_of(this->source));
      EXPECT_EQ(d.flash.complaint(), "");
      EXPECT_LE(this->sent(), image::image_bytes + again);
      EXPECT_EQ(this->pair.status().completed, 1u);
      cuts += here;
      if (here == 0) break;
    }
  EXPECT_GT(cuts, 100u);
  EXPECT_GT(went_on, cuts / 2);
}

TYPED_TEST(FlashRecipient, A_finished_image_is_not_fetched_again) {
  this->pair.left->publish(this->source, {1, 2}, 2);
  device<TypeParam> d(1);
  ASSERT_TRUE(d.start(this->pair));
  const std::uint64_t operations = d.flash.operations(), before = this->sent();
  d.flash.restart();
  EXPECT_TRUE(d.valid());
  const auto done = d.start(this->pair);
  ASSERT_TRUE(done);
  EXPECT_TRUE(done->confirmed);
  EXPECT_LE(this->sent() - before, 1u);
  EXPECT_EQ(d.flash.operations(), operations);
}

TYPED_TEST(FlashRecipient, An_owner_with_metadata_is_pulled_whole_each_time) {
  // The same tensors with a longer header: its hash is not that of a constant of this program.
  const auto& schema = this->source.schema();
  std::vector<tp::mutable_tensor_view> views;
  for (std::size_t i = 0; i < schema.tensor_count; ++i) {
    const auto& t = schema.tensors[i];
    views.push_back({t.name, t.type, {t.shape, t.rank}, this->source.destination().address(i)});
  }
  const tp::metadata_entry metadata[] = {{"format", "pt"}};
  const auto published = tp::dynamic_image::make(std::span<const tp::mutable_tensor_view>(views), metadata);
  ASSERT_TRUE(published);
  ASSERT_EQ(published->schema().fingerprint, image::fingerprint);
  ASSERT_GT(published->schema().header_bytes, image::header_bytes);
  ASSERT_TRUE(this->pair.left->references.publish(
      published->source(), *tp::image_version<tp::xxhash_digest>(published->source()), true, {1, 2}, 0));
  device<TypeParam> d(1);
  for (int i = 0; i < 2; ++i) {
    const auto before = this->sent();
    const auto done = d.start(this->pair);
    ASSERT_TRUE(completed(done));
    EXPECT_TRUE(d.holds(this->source));
    EXPECT_EQ(this->sent() - before, published->schema().image_bytes);
    EXPECT_FALSE(d.valid());
    d.flash.restart();
  }
}

TYPED_TEST(FlashRecipient, Flash_that_fails_ends_the_transfer_by_name) {
  this->pair.left->publish(this->source, {1, 2}, 1);
  using landing_type = typename device<TypeParam>::landing_type;
  TypeParam flash(first_page + landing_type::pages - 1, 1);  // a page too few
  landing_type landing(flash, first_page);
  tp::embedded_recipient<landing_type, chunk> program(landing, net_pull, 5);
  ASSERT_TRUE(this->pair.run(program));
  EXPECT_EQ(code_of(program.outcome()), errc::io);
  EXPECT_EQ(this->pair.status().cancelled, 1u);
  EXPECT_EQ(flash.complaint(), "a page outside was erased");
}

TEST(MemoryLanding, Has_no_cursor_so_a_restart_begins_at_byte_0) {
  static_assert(!tp::lasting_landing<tp::model_landing<net>>);
  small_pair pair;
  const model source = fill(list_of<net>(), 1);
  pair.left->publish(source, {1, 2}, 1);
  const auto sent = [&] { return pair.status().bytes_sent; };
  landed_net<64> device;
  {
    landed_net<64>& first = device;
    pair.run_until(first.recipient, [&] { return first.recipient.landed_bytes() > image::image_bytes - 100; });
    pair.on_its_way.clear();
  }
  const auto before = sent();
  EXPECT_GT(before, image::image_bytes - 100);
  tp::model_landing<net> again(device.target);  // the same memory, with all that had landed in it
  tp::embedded_recipient<tp::model_landing<net>, 64> program(again, net_pull, 77);
  ASSERT_TRUE(pair.run(program));
  ASSERT_TRUE(program.outcome());
  EXPECT_EQ(sent() - before, image::image_bytes);
  EXPECT_EQ(data_of(device.target), data_of(source));
}

}  // namespace flash_recipient_test
