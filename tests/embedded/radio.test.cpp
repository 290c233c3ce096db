// Radios, whose datagrams are short: 128 bytes with chunks of 48, 256 bytes with chunks of 176, and what is left of
// them if the link adds 8 bytes of its own. A frame has 80 bytes before its payload, on every link. A small machine
// pulls from another, in virtual time; hosts are in recipient.test.cpp and owner_pulled.test.cpp.
#include "support/embedded_link.hpp"

#include <tensorpull/embedded/recipient.hpp>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace radio_test {

using namespace test;

constexpr tp::ref_id id{1, 2};

/// The longest chunk that fits a datagram.
constexpr std::size_t chunk_of(std::size_t datagram_bytes) { return (datagram_bytes - 80) / 8 * 8; }
static_assert(chunk_of(128) == 48 && chunk_of(256) == 176 && chunk_of(120) == 40 && chunk_of(248) == 168);

struct named_air {
  link_conditions air;
  const char* name;
};
class Radio : public ::testing::TestWithParam<named_air> {};
constexpr named_air airs[] = {{{0, 0, 0, 20'000us, 0us}, "clean"},
                              {{0, 0.05, 0, 20'000us, 0us}, "lossy"},
                              {{0, 0.05, 0.05, 20'000us, 0us}, "doubling"},
                              {{0, 0.05, 0.05, 20'000us, 30'000us}, "reordering"},
                              {{0, 0.3, 0.2, 20'000us, 10'000us}, "bad"}};
INSTANTIATE_TEST_SUITE_P(Airs, Radio, ::testing::ValuesIn(airs), [](const auto& i) { return i.param.name; });

template <std::size_t Bytes>
using small_recipient = tp::embedded_recipient<tp::model_landing<device_model>, chunk_of(Bytes)>;
template <std::size_t Bytes>
using radio_owner = small_owner<chunk_of(Bytes), tp::detail::no_hash, Bytes>;

/// What a transfer cost on the air.
struct cost {
  std::uint64_t datagrams_up = 0, datagrams_down = 0, bytes_up = 0, bytes_down = 0;
  microseconds time{0};
};

/// A small machine pulls from another.
template <std::size_t Bytes>
cost pull_by_radio(link_conditions air, std::uint64_t seed) {
  air.datagram_bytes = Bytes;
  cost c;
  const device_model source = random_model(seed);
  const model twin = twin_of(source);
  device_model mine{};
  radio_owner<Bytes> owner;
  owner.publish(source, id, seed + 5);
  std::vector<byte_vector> said;
  tp::model_landing<device_model> landing(mine);
  small_recipient<Bytes> r(landing, {.ref = id, .recipient = {9}, .timeout_ms = 60'000, .retry_ms = 250},
                           seed * 0x9e3779b97f4a7c15);
  generator dice(seed + 9);
  lossy_line up, down;
  microseconds now{1'000'000};
  const auto ms = [&] { return static_cast<std::uint32_t>(now.count() / 1000); };
  for (const auto limit = now + 2h; !r.ended() && now < limit;) {
    std::array<std::byte, small_recipient<Bytes>::max_out> out;
    if (const std::size_t n = r.next(out, ms()); n > 0)
      ++c.datagrams_up, c.bytes_up += n, up.put(datagram_of(std::span(out).first(n)), n, air, dice, now);
    for (const byte_vector& d : std::exchange(said, {}))
      if (!d.empty()) {
        ++c.datagrams_down, c.bytes_down += d.size();
        down.put(datagram_of(d), d.size(), air, dice, now);
      }
    now = std::min(now + 10ms, std::max(now, std::min(up.next_time(), down.next_time())));
    while (up.next(now, [&](const_byte_span d) { said.push_back(answer_of(owner, d, ms())); })) {
    }
    down.next(now, [&](const_byte_span d) { r.received(byte_vector(d.begin(), d.end()), ms()); });  // of exactly its
                                                                                                    // size
  }
  c.time = now - 1'000'000us;
  EXPECT_TRUE(r.ended()) << seed;
  if (!r.ended()) return c;
  const auto done = r.outcome();
  EXPECT_TRUE(done) << seed << ' ' << to_string(done.error().code) << ' ' << r.landed_bytes();
  if (!done) return c;
  EXPECT_EQ(done->outcome, tp::outcome::completed);
  EXPECT_TRUE(done->confirmed) << to_string(done->unconfirmed_because);
  EXPECT_EQ(twin_of(mine).image_bytes(), twin.image_bytes());
  EXPECT_EQ(owner.state(), tp::recipient_state::completed);
  return c;
}

TEST_P(Radio, A_small_machine_pulls_from_another) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    pull_by_radio<128>(GetParam().air, seed);
    pull_by_radio<256>(GetParam().air, seed);
    pull_by_radio<120>(GetParam().air, seed);
    pull_by_radio<248>(GetParam().air, seed);
  }
}

/// The table of include/tensorpull/embedded/README.md: what the lengths cost if nothing is lost.
TEST(RadioCosts, Are_those_of_the_page) {
  std::ifstream file(std::filesystem::path(TENSORPULL_SCHEMA).parent_path().parent_path() / "embedded/README.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const auto row = [&page](std::size_t bytes, std::uint64_t image, const cost& c) {
    char line[100];
    std::snprintf(line, sizeof line, "| %zu | %zu | %llu | %llu | %.2f |\n", bytes, chunk_of(bytes),
                  static_cast<unsigned long long>(c.datagrams_up + c.datagrams_down),
                  static_cast<unsigned long long>(c.bytes_up + c.bytes_down),
                  static_cast<double>(c.bytes_up + c.bytes_down) / static_cast<double>(image));
    EXPECT_NE(page.find(line), page.npos) << line;
    const auto header = static_cast<std::uint64_t>(tp::embedded_image<device_model>::header_bytes),
               chunk = static_cast<std::uint64_t>(chunk_of(bytes));
    const std::uint64_t chunks = (header + chunk - 1) / chunk + (image - header + chunk - 1) / chunk;
    const std::uint64_t pieces = bytes >= 152 ? 0 : (152 + chunk - 1) / chunk;
    EXPECT_EQ(c.datagrams_up, chunks + 2 + pieces)
        << "a request for each chunk, the description and the confirmation, and a word for each piece of the description";
    EXPECT_EQ(c.datagrams_down, chunks + 2 + (pieces > 0 ? pieces - 1 : 0));
    EXPECT_EQ(c.bytes_up, 80 * c.datagrams_up) << "a datagram of a small machine has 80 bytes";
  };
  constexpr std::uint64_t image = tp::embedded_image<device_model>::image_bytes;
  const link_conditions air = airs[0].air;
  row(120, image, pull_by_radio<120>(air, 1));
  row(128, image, pull_by_radio<128>(air, 1));
  row(248, image, pull_by_radio<248>(air, 1));
  row(256, image, pull_by_radio<256>(air, 1));
  row(592, image, pull_by_radio<592>(air, 1));
  EXPECT_EQ(image, 25'892u);
}

}  // namespace radio_test
