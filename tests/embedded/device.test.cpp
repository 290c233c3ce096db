// The pipeline of a small machine: its words, over a line in memory, with a small machine or a host's link at the other
// end.
#include "embedded/simulated_flash.hpp"
#include "support/random.hpp"
#include "support/results.hpp"
#include "support/words.hpp"

#include <tensorpull/device.hpp>
#include <tensorpull/tensors/structs/raw.hpp>
// a program may have the other end, too
#include <tensorpull/transports/over/serial/serial.hpp>

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>

namespace device_test {

using namespace test;
using tp::errc;

struct mlp {
  float weight[32][8], bias[33];
};

/// What one end writes the other reads. A full one takes no more, as a UART's buffer does.
struct wire {
  std::deque<std::byte> bytes;
  std::size_t room = 300;
};
struct uart {
  wire &in, &out;
  tp::io_result read(std::span<std::byte> to) noexcept {
    std::size_t n = 0;
    for (; n < to.size() && !in.bytes.empty(); in.bytes.pop_front()) to[n++] = in.bytes.front();
    return {n > 0 ? tp::io_status::ok : tp::io_status::would_block, 0, n};
  }
  tp::io_result write(std::span<const std::byte> from) noexcept {
    const std::size_t n = std::min(from.size(), out.room - std::min(out.room, out.bytes.size()));
    out.bytes.insert(out.bytes.end(), from.begin(), from.begin() + static_cast<std::ptrdiff_t>(n));
    return {n > 0 ? tp::io_status::ok : tp::io_status::would_block, 0, n};
  }
};

/// Its time goes on while it rests, and so does the other end.
struct machine {
  using milliseconds = std::chrono::duration<std::uint32_t, std::milli>;
  inline static milliseconds time{0xffff'f000};  // it wraps on the way
  inline static generator dice{5};
  inline static std::function<void()> other;
  inline static bool stops = false;
  static milliseconds now() noexcept { return time; }
  static std::uint64_t random() noexcept { return dice(); }
  static void panic(const char*) noexcept {}
  static bool stopped() noexcept { return stops; }
  static void idle() noexcept {
    ++time;
    if (other) other();
  }
};

}  // namespace device_test

BOOST_HANA_ADAPT_STRUCT(device_test::mlp, weight, bias);

namespace device_test {

template <std::uint64_t Chunk = 256, class Model = mlp>
using net_of =
    tp::pipeline<tp::small_machine<machine>, tp::serial_over<uart>, tp::raw_tensors<Model>, tp::fixed_bytes<Chunk>>;
using net = net_of<>;
static_assert(net::memory.recipient ==
              sizeof(decltype(net::begin_pull(std::declval<uart&>(), std::declval<tp::reference>(),
                                              std::declval<mlp&>()))));
// The datagram with its chunk, the frame that goes, and the state of the engine.
static_assert(net::memory.recipient <= 256 + 80 + 2 * 100 + 500);
static_assert(net::memory.owner < net::memory.session);

mlp random_model(std::uint64_t seed) {
  mlp m;
  generator dice(seed);
  for (auto& row : m.weight)
    for (float& w : row) w = static_cast<float>(dice() % 1000);
  for (float& b : m.bias) b = static_cast<float>(dice() % 1000);
  return m;
}
bool same(const mlp& a, const mlp& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

struct Device : testing::Test {
  Device() {
    machine::other = [this] { (void)owner.step(); };
    machine::stops = false;
  }
  ~Device() override { machine::other = nullptr; }
  tp::reference publish(const tp::publish_options& options = {}) {
    const auto ref = owner.add_tensors(source, options);
    EXPECT_TRUE(ref);
    return *ref;
  }
  wire there, back;
  uart here{back, there}, far{there, back};
  net::downloader owner{far};
  mlp source = random_model(1), target{};
};

TEST_F(Device, A_model_is_published_and_pulled_in_the_words_of_every_pipeline) {
  const tp::reference ref = publish();
  EXPECT_FALSE(owner.settled(ref));
  EXPECT_EQ(owner.settlement_of(ref)->verdict, tp::verdict::open);
  const auto done = net::download_tensors(here, ref, target);
  ASSERT_TRUE(confirmed(done));
  EXPECT_FALSE(done->believed) << "the reference has a version";
  EXPECT_EQ(done->version, ref.version);
  EXPECT_TRUE(same(source, target));
  EXPECT_TRUE(owner.settled(ref));
  const auto s = owner.settlement_of(ref);
  ASSERT_TRUE(s);
  EXPECT_EQ(s->verdict, tp::verdict::completed);
  EXPECT_EQ(s->counts.completed, 1u);
  EXPECT_EQ(s->counts.bytes_sent, net::image::image_bytes);
  EXPECT_EQ(owner.settlement_of({{7, 7}, 0, 0}).error().code, errc::unknown_reference);

  source = random_model(2);
  const tp::reference next = publish();
  EXPECT_NE(next.version, ref.version);
  EXPECT_TRUE(owner.settled(ref)) << "that of before";
  ASSERT_TRUE(net::download_tensors(here, next.id, target));
  EXPECT_TRUE(same(source, target));
}
TEST_F(Device, A_reference_means_its_version) {
  tp::reference ref = publish({.id = {1, 2}});
  ref.version ^= 1;
  const auto stale = net::download_tensors(here, ref, target);
  ASSERT_EQ(code_of(stale), errc::stale_version);
  EXPECT_EQ(owner.withdraw(ref).error().code, errc::unknown_reference);
  EXPECT_FALSE(owner.settled());
  const auto other = net::download_tensors(here, tp::ref_id{1, 3}, target);
  ASSERT_EQ(code_of(other), errc::unknown_reference);
}
TEST_F(Device, Before_a_publication_no_reference_is_known) {
  EXPECT_EQ(owner.settlement_of({}).error().code, errc::unknown_reference);
  EXPECT_EQ(owner.withdraw(tp::reference{}).error().code, errc::unknown_reference);
  EXPECT_TRUE(owner.settled({}));
}
TEST_F(Device, Options_that_it_has_no_room_for_are_refused_and_change_nothing) {
  const tp::reference ref = publish();
  const tp::recipient_id names[]{{3}, {4}};
  for (const tp::publish_options& o :
       {tp::publish_options{.recipients = 2}, tp::publish_options{.named = names}, tp::publish_options{.least = 2},
        tp::publish_options{.beside = ref.id}, tp::publish_options{.tensor_digests = true},
        tp::publish_options{.version = ref.version},
        tp::publish_options{.budgets = {.acquire = std::chrono::seconds(5)}}})
    EXPECT_EQ(owner.add_tensors(source, o).error().code, errc::invalid_argument);
  EXPECT_FALSE(owner.settled(ref)) << "it is there still";
  EXPECT_TRUE(owner.add_tensors(source, {.recipients = 1, .least = 1}));
}
TEST_F(Device, The_owner_hears_of_a_pull_that_ends_early_and_a_recipient_of_a_withdrawal) {
  const tp::reference ref = publish();
  auto pull = net::begin_pull(here, ref, target);
  while (pull.landed_bytes() < 600)
    if (!pull.step()) machine::idle();
  EXPECT_EQ(owner.state(), tp::recipient_state::acquired);
  EXPECT_EQ(pull.total_bytes(), net::image::image_bytes);
  pull.cancel(42);
  while (!pull.ended())
    if (!pull.step()) machine::idle();
  EXPECT_EQ(pull.outcome().error().code, errc::cancelled);
  for (int i = 0; i < 100; ++i) machine::idle();
  EXPECT_EQ(owner.state(), tp::recipient_state::cancelled);
  EXPECT_EQ(owner.reason(), 42u);
  ASSERT_TRUE(owner.withdraw(ref, 9));
  EXPECT_EQ(owner.settlement_of(ref)->verdict, tp::verdict::withdrawn);
  const auto gone = net::download_tensors(here, ref, target);
  ASSERT_EQ(code_of(gone), errc::withdrawn);
  EXPECT_EQ(gone.error().system, 9);
}
TEST_F(Device, A_platform_that_stops_keeps_the_number_of_a_pull_that_was_given_up) {
  const tp::reference ref = publish();
  auto pull = net::begin_pull(here, ref, target);
  while (pull.landed_bytes() < 600)
    if (!pull.step()) machine::idle();
  pull.cancel(42);
  machine::stops = true;
  EXPECT_EQ(pull.wait().error().code, errc::cancelled);
  for (int i = 0; i < 100; ++i) machine::idle();
  EXPECT_EQ(owner.reason(), 42u);
}
TEST_F(Device, A_model_may_be_an_array_of_structs) {
  using layers = mlp[2];
  using stack = net_of<256, layers>;
  layers from{source, random_model(2)}, to{};
  stack::downloader both(far);
  machine::other = [&] { (void)both.step(); };
  const auto ref = both.add_tensors(from);
  ASSERT_TRUE(ref);
  EXPECT_EQ(ref->fingerprint, tp::raw_tensors<layers>::schema().fingerprint);
  EXPECT_EQ(stack::image::tensor_count, 4u);
  ASSERT_TRUE(stack::download_tensors(here, *ref, to));
  EXPECT_TRUE(same(to[0], from[0]) && same(to[1], from[1]));
}
TEST_F(Device, Its_time_limit_ends_a_pull_that_nobody_answers_and_a_platform_that_stops_does_too) {
  machine::other = nullptr;
  const auto began = machine::now();
  const auto late = net::download_tensors(here, tp::ref_id{1, 2}, target,
                                          {.per_request_timeout = std::chrono::seconds(3)});
  ASSERT_EQ(code_of(late), errc::timed_out);
  EXPECT_GE(machine::now() - began, machine::milliseconds(3000));
  EXPECT_LE(machine::now() - began, machine::milliseconds(13'100)) << "the line takes nothing any more";
  machine::stops = true;
  there.bytes.clear();
  const auto stopped = net::download_tensors(here, tp::ref_id{1, 2}, target);
  ASSERT_EQ(code_of(stopped), errc::cancelled);
}
TEST_F(Device, A_pull_that_is_repeated_after_an_hour_ends_in_its_time_all_the_same) {
  publish({.id = {1, 2}});
  auto pull = net::begin_pull(here, tp::ref_id{1, 2}, target,
                              {.per_request_timeout = std::chrono::seconds(2), .resend = std::chrono::hours(1)});
  while (pull.landed_bytes() < 600)
    if (!pull.step()) machine::idle();
  const auto began = machine::now();
  machine::other = [this] { there.bytes.clear(); };
  EXPECT_EQ(pull.wait().error().code, errc::timed_out);
  EXPECT_LE(machine::now() - began, machine::milliseconds(6'100)) << "with what it tells the owner";
}
template <std::uint64_t Chunk>
void expect_pulled() {
  wire there, back;
  uart here{back, there}, far{there, back};
  typename net_of<Chunk>::downloader owner(far);
  const mlp source = random_model(Chunk);
  mlp target{};
  const auto ref = owner.add_tensors(source);
  machine::other = [&] { (void)owner.step(); };
  EXPECT_TRUE((net_of<Chunk>::download_tensors(here, *ref, target))) << Chunk;
  machine::other = nullptr;
  EXPECT_TRUE(same(source, target)) << Chunk;
}
TEST_F(Device, A_description_that_is_longer_than_a_datagram_travels_in_pieces) {
  expect_pulled<8>();
  expect_pulled<24>();
  expect_pulled<64>();
  expect_pulled<72>();
}
TEST_F(Device, Both_ends_of_one_line_pull_from_each_other_at_once) {
  // Both in this thread: each step of one is followed by one of the other.
  net::session left(here), right(far);
  const mlp update = random_model(3);
  mlp landed{};
  const auto from_left = left.add_tensors(source), from_right = right.add_tensors(update);
  ASSERT_TRUE(from_left && from_right);
  auto a = net::begin_pull(left, *from_right, target);
  auto b = net::begin_pull(right, *from_left, landed);
  bool together = false;
  while (!(a.ended() && b.ended() && left.settled() && right.settled())) {
    const bool moved = static_cast<int>(a.step()) + static_cast<int>(b.step()) > 0;
    together = together || (a.landed_bytes() > 0 && b.landed_bytes() > 0 && !a.ended() && !b.ended());
    machine::other = nullptr;
    if (!moved) machine::idle();
  }
  EXPECT_TRUE(together);
  EXPECT_EQ(a.outcome()->outcome, tp::outcome::completed);
  EXPECT_EQ(b.outcome()->outcome, tp::outcome::completed);
  EXPECT_TRUE(same(target, update) && same(landed, source));
}
TEST_F(Device, In_flash_a_pull_goes_on_after_a_power_cut_and_serves_the_bootloader) {
  using chip = simulated_flash<256, 4>;
  using landing = net::in_flash<chip>;
  chip flash(landing::pages, 3);
  const tp::reference ref = publish();
  {
    landing to(flash);
    auto pull = net::begin_pull(here, ref, to, {.recipient = {7}});
    while (pull.landed_bytes() < net::image::header_bytes + 700)
      if (!pull.step()) machine::idle();
  }  // the power is gone
  landing to(flash);
  EXPECT_FALSE(to.valid());
  const auto done = net::pull(here, ref, to, {.recipient = {7}});
  ASSERT_TRUE(completed(done));
  EXPECT_TRUE(to.valid());
  EXPECT_LT(done->chunks, (net::image::image_bytes - 512) / 256) << "it went on where it was";
  mlp read{};
  std::array<std::byte, net::image::data_bytes> data;
  ASSERT_TRUE(to.read(0, data));
  ASSERT_TRUE(net::image::write(read, 0, data));
  EXPECT_TRUE(same(read, source));
}
TEST_F(Device, Names_are_changed_as_for_a_host) {
  using model = tp::renamed<mlp, tp::from_to{"bias", "0.bias"}, tp::from_to{"weight", "0.weight"}>;
  using renamed = net_of<256, model>;
  const tp::reference ref = publish();
  const auto other = renamed::download_tensors(here, ref, target);
  ASSERT_EQ(code_of(other), errc::schema_mismatch);
  renamed::downloader names(far);
  machine::other = [&] { (void)names.step(); };
  const auto ours = names.add_tensors(source);
  ASSERT_TRUE(ours);
  EXPECT_EQ(ours->fingerprint, tp::raw_tensors<model>::schema().fingerprint);
  ASSERT_TRUE(renamed::download_tensors(here, *ours, target));
  EXPECT_TRUE(same(target, source));
}
TEST_F(Device, The_owner_serves_until_its_model_is_taken) {
  const tp::reference ref = publish();
  auto pull = net::begin_pull(here, ref, target);
  machine::other = [&] { (void)pull.step(); };
  owner.serve([&](auto& o) { return o.settled(ref) && pull.ended(); });
  EXPECT_TRUE(pull.ended());
  EXPECT_TRUE(same(target, source));
}

/// A transport of a program's own: datagrams that need no frame, such as a radio's.
struct radio {
  std::deque<byte_vector>&in, &out;
};
struct over_radio {
  using is_transport_policy = void;
  using device = radio;
  template <std::size_t In, std::size_t Out>
  struct small_line {
    static constexpr std::size_t max_in = In, max_out = Out;
    explicit small_line(radio& r) noexcept : air(r) {}
    std::span<const std::byte> receive() noexcept {
      if (air.in.empty()) return {};
      last = air.in.front();
      air.in.pop_front();
      return last;
    }
    std::span<std::byte> room() noexcept { return next; }
    void send(std::size_t n) noexcept {
      air.out.emplace_back(next.begin(), next.begin() + static_cast<std::ptrdiff_t>(n));
    }
    bool idle() const noexcept { return true; }
    radio& air;
    byte_vector last;
    alignas(8) std::array<std::byte, Out> next;
  };
};
TEST(DeviceRadio, A_transport_of_ones_own_carries_the_same_pipeline) {
  using air_net = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<40>, over_radio, tp::small_machine<machine>>;
  std::deque<byte_vector> up, down;
  radio here{down, up}, far{up, down};
  air_net::downloader owner(far);
  const mlp source = random_model(4);
  mlp target{};
  const auto ref = owner.add_tensors(source);
  ASSERT_TRUE(ref);
  machine::other = [&] { (void)owner.step(); };
  const auto done = air_net::download_tensors(here, *ref, target);
  machine::other = nullptr;
  ASSERT_TRUE(done);
  EXPECT_TRUE(same(source, target));
}

}  // namespace device_test
