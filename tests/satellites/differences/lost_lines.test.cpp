// Differences over TCP connections that end in the middle of a chunk, again and again: what has come is applied once,
// with and without digests of chunks, in place and into an average.
#include "transports/network.hpp"

#include <tensorpull/consumers/average/weighted_average.hpp>
#include <tensorpull/satellites/differences/deflate/deflate.hpp>
#include <tensorpull/satellites/differences/download_changes.hpp>
#include <tensorpull/satellites/differences/widened.hpp>

namespace lost_lines_test {

using namespace test;
template <class... Integrity>
using net = tp::pipeline<tp::raw_tensors<dense>, tp::fixed_bytes<4_KiB>, tp::tcp, Integrity...>;

/// Passes bytes on between whoever connects and a port of this machine. A connection ends once `most` bytes have come
/// from there, the first `lost` connections of all.
class cutting_line {
 public:
  cutting_line(std::uint16_t to, std::size_t most, int lost)
      : thread_([this, to, most, lost](std::stop_token stop) { run(stop, to, most, lost); }) {}
  std::uint16_t port() const { return listener_.port(); }
  int cut() const { return cut_; }

 private:
  void run(const std::stop_token& stop, std::uint16_t to, std::size_t most, int lost) {
    while (auto client = listener_.accept(30s, stop)) {
      raw_peer near(std::move(*client)), far(to);
      std::size_t left = cut_ < lost ? most : ~std::size_t{0};
      pass(stop, near, far, left);
      if (left == 0) ++cut_;
    }
  }
  static void pass(const std::stop_token& stop, raw_peer& near, raw_peer& far, std::size_t& left) {
    byte_vector room(4096);
    while (!stop.stop_requested() && left > 0) {
      bool moved = false;
      for (const bool up : {true, false}) {
        raw_peer &from = up ? near : far, &into = up ? far : near;
        const auto io = read_some(from.stream(), std::span(room).first(up ? room.size() : std::min(room.size(), left)));
        if (tp::is_end(io.status) || (io.bytes > 0 && !into.say(std::span(room).first(io.bytes)))) return;
        if (!up && left != ~std::size_t{0}) left -= io.bytes;
        moved = moved || io.bytes > 0;
      }
      if (!moved) near.stream().wait(true, false, 1ms);
    }
  }
  tp::tcp_listener listener_ = *tp::tcp_listener::open(any_port);
  std::atomic<int> cut_ = 0;
  joined_thread thread_;
};

constexpr std::array<std::uint64_t, 1> b_shape{128};
constexpr std::array<std::uint64_t, 2> w_shape{128, 784};

tp::pull_options patient() {
  return {.per_request_timeout = 10s, .retry = {.retries = 3, .first_delay = 1ms, .longest_delay = 2ms}};
}

/// Another version of a model, of which every 3rd float has changed a little.
std::unique_ptr<dense> stepped(const dense& from) {
  auto made = std::make_unique<dense>(from);
  auto* const w = reinterpret_cast<float*>(&made->w);
  for (std::size_t i = 0; i < sizeof made->w / 4; i += 3) w[i] += 1e-3f;
  return made;
}
std::unique_ptr<dense> first_version() {
  auto made = std::make_unique<dense>();
  auto* const w = reinterpret_cast<float*>(&made->w);
  for (std::size_t i = 0; i < sizeof made->w / 4; ++i) w[i] = static_cast<float>(i % 1000) * 1e-3f;
  return made;
}

template <class Net>
void brings_up_to_date() {
  const auto old = first_version(), now = stepped(*old);
  tp::deflate_coder coder;
  const auto difference = tp::model_difference::make(tp::raw_tensors<dense>::source(*old),
                                                     tp::raw_tensors<dense>::source(*now), coder);
  ASSERT_TRUE(difference);
  for (const std::size_t most : {3'000u, 5'555u, 30'001u}) {
    auto owner = Net::downloader::open({});
    const auto whole = *owner->add_tensors(*now, {.recipients = 2});
    const auto changes = *owner->add_image(difference->image());
    auto mine = std::make_unique<dense>(*old);
    std::optional<serving> server(std::in_place, *owner);
    cutting_line line(owner->port(), most, 3);
    std::uint64_t came = 0;
    const auto done = tp::download_changes<Net>(local(line.port()), whole, changes, *mine, coder, patient(), &came);
    ASSERT_TRUE(succeeded(done)) << " " << most;
    EXPECT_GT(line.cut(), 0);
    EXPECT_GT(came, 0u) << most;
    EXPECT_TRUE(same(*mine, *now));

    // a model to which the difference is none: the whole goes on where it was
    reinterpret_cast<std::byte*>(mine.get())[5] ^= std::byte{1};
    cutting_line other(owner->port(), most, 3);
    const auto all = tp::download_changes<Net>(local(other.port()), whole, changes, *mine, coder, patient(), &came);
    ASSERT_TRUE(succeeded(all)) << " " << most;
    EXPECT_GT(other.cut(), 1);
    EXPECT_EQ(came, 0u);
    EXPECT_TRUE(same(*mine, *now));
  }
}
TEST(LostLines, A_difference_that_broke_off_goes_on_with_another_call) {
  using Net = net<tp::chunk_and_image_digest>;
  using tensors = tp::raw_tensors<dense>;
  const auto old = first_version(), now = stepped(*old);
  tp::deflate_coder coder;
  const auto difference = tp::model_difference::make(tensors::source(*old), tensors::source(*now), coder);
  ASSERT_TRUE(difference);
  auto owner = Net::downloader::open({});
  const auto whole = *owner->add_tensors(*now);
  const auto changes = *owner->add_image(difference->image());
  const serving server(*owner);
  const std::size_t all = difference->bytes().size();
  bool went_on = false;
  for (const bool meddled : {false, true})
    for (const std::size_t most : {std::size_t{2'000}, all / 3, all * 2 / 3}) {
      SCOPED_TRACE(most);
      auto mine = std::make_unique<dense>(*old);
      auto kept = tp::applied_difference<tp::deflate_coder>::make(tensors::destination(*mine), coder, 4_KiB);
      ASSERT_TRUE(kept);
      cutting_line line(owner->port(), most, 1);
      std::uint64_t came = 0;
      const auto broken = tp::download_changes<Net>(local(line.port()), whole, changes, *mine, *kept,
                                                    {.per_request_timeout = 30s, .retry = {.retries = 0}}, &came);
      ASSERT_FALSE(broken);
      const bool partly = kept->state() == tp::difference_state::partly;
      if (meddled && partly) reinterpret_cast<std::byte*>(mine.get())[5] ^= std::byte{1};
      const auto done = tp::download_changes<Net>(local(owner->port()), whole, changes, *mine, *kept, {}, &came);
      ASSERT_TRUE(succeeded(done));
      EXPECT_TRUE(same(*mine, *now));
      EXPECT_EQ(came == 0, meddled && partly) << "what has changed meanwhile is no part of it";
      EXPECT_EQ(kept->state() == tp::difference_state::applied, came != 0);
      went_on = went_on || (partly && came != 0);
      if (came == 0) continue;
      const auto again = tp::download_changes<Net>(local(owner->port()), whole, changes, *mine, *kept, {}, &came);
      ASSERT_TRUE(succeeded(again)) << "such as after a confirmation that was lost";
      EXPECT_GT(came, 0u);
    }
  EXPECT_TRUE(went_on);
}
TEST(LostLines, A_difference_goes_on_where_it_was_and_so_does_the_whole) {
  brings_up_to_date<net<>>();
  brings_up_to_date<net<tp::chunk_and_image_digest>>();
}

/// A model in place, and an average of the one update, by narrowed differences.
template <class Net, class Scheme>
void is_widened() {
  const auto old = first_version(), now = stepped(*old);
  using tensors = tp::raw_tensors<dense>;
  const auto views = [](const dense& m) {
    return std::array<tp::tensor_view, 2>{
        {{.name = "b", .type = dtype::f32, .shape = b_shape, .data = reinterpret_cast<const std::byte*>(&m.b)},
         {.name = "w", .type = dtype::f32, .shape = w_shape, .data = reinterpret_cast<const std::byte*>(&m.w)}}};
  };
  const auto difference = tp::narrowed_difference<Scheme>::make(views(*now), views(*old));
  ASSERT_TRUE(difference);
  for (const std::size_t most : {3'000u, 5'555u, 30'001u}) {
    auto owner = Net::downloader::open({});
    const auto changes = *owner->add_image(difference->model().source());
    const serving server(*owner);
    cutting_line line(owner->port(), most, 3), other(owner->port(), most, 3);

    auto mine = std::make_unique<dense>(*old);
    tp::land to(tensors::destination(*mine));
    auto in_place = tp::widened<tp::land, Scheme>::make(to, tensors::source(*mine), 4_KiB);
    const auto moved = Net::pull(local(line.port()), changes, *in_place, patient());
    ASSERT_TRUE(succeeded(moved)) << " " << most;
    EXPECT_GT(line.cut(), 0);

    if constexpr (Net::parts::integrity::per_chunk) {
      auto sum = std::make_unique<dense>(*old);
      auto buffers = tp::chunk_buffers::make(4_KiB, 1);
      auto average = tp::weighted_average<>::make(tensors::destination(*sum), *buffers,
                                                  {.base = tensors::source(*old)});
      tp::weighted_average<>::update update(*average, 2, {"client", 1});
      auto added = tp::widened<tp::weighted_average<>::update, Scheme>::make(update, tensors::source(*old), 4_KiB);
      const auto done = Net::pull(local(other.port()), changes, *added, patient());
      ASSERT_TRUE(succeeded(done)) << " " << most;
      EXPECT_EQ(average->whole_updates(), 1u);
      ASSERT_TRUE(average->finish());
      auto* const a = reinterpret_cast<const float*>(mine.get());
      auto* const b = reinterpret_cast<const float*>(sum.get());
      for (std::size_t i = 0; i < sizeof(dense) / 4; ++i) ASSERT_NEAR(a[i], b[i], 1e-6) << i;
    }
  }
}
TEST(LostLines, A_narrowed_difference_goes_on_where_it_was) {
  is_widened<net<tp::chunk_and_image_digest>, tp::blocks_of_8_bits<>>();
  is_widened<net<tp::chunk_and_image_digest>, tp::blocks_of_4_bits<256, tp::tensors_named<"b">>>();
  is_widened<net<>, tp::blocks_of_8_bits<>>();
  is_widened<net<>, tp::blocks_of_4_bits<>>();
}

}  // namespace lost_lines_test
