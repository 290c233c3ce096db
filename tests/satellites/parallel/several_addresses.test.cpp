// Several addresses where the same is published: which is asked first, where a pull goes on, and which error is told.
#include "transports/network.hpp"

#include <tensorpull/satellites/parallel/several_addresses.hpp>

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace several_addresses_test {

using namespace test;
using namespace std::chrono_literals;
using net = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<16_KiB>, tp::tcp>;
constexpr tp::retry_policy quick{.retries = 3, .first_delay = 5ms, .longest_delay = 20ms};
constexpr tp::ref_id id{7, 8};

/// An owner of a model, that can be ended while others pull.
struct running {
  std::unique_ptr<mlp> source;
  std::optional<tp::result<net::downloader>> owner;
  tp::reference ref;
  std::string where;
  std::optional<serving> server;
  explicit running(std::uint64_t seed, tp::ref_id as = id)
      : source(random_model<mlp>(seed)), owner(net::downloader::open()),
        ref(*(*owner)->add_tensors(*source, {.id = as})), where(local((*owner)->port())) {
    server.emplace(**owner);
  }
  void end() { server.reset(), owner.reset(); }
};
std::string nobody() {
  raw_listener closed;
  return local(closed.port());
}

struct attempts {
  std::vector<tp::address_attempt> all;
  void operator()(const tp::address_attempt& a) { all.push_back(a); }
};

TEST(SeveralAddresses, The_first_that_takes_a_connection_is_asked) {
  running b(1);
  const std::string dead = nobody();
  const std::array<std::string_view, 3> where{dead, b.where, dead};
  attempts seen;
  const tp::several_addresses<tp::tcp> several(where, 10s, seen);
  const auto mine = blank<mlp>();
  const auto done = net::download_tensors(several, b.ref, *mine, {.retry = quick});
  ASSERT_TRUE(done);
  ASSERT_EQ(seen.all.size(), 2u);
  EXPECT_EQ(seen.all[0].failed, tp::errc::connection_failed);
  EXPECT_NE(seen.all[0].system, 0);
  EXPECT_EQ(seen.all[1].failed, tp::errc{});
  EXPECT_EQ(several.current(), 1u);
}

TEST(SeveralAddresses, What_has_landed_stays_when_an_owner_dies_and_the_next_goes_on) {
  running a(1), b(1);
  const std::array<std::string_view, 2> where{a.where, b.where};
  attempts seen;
  const tp::several_addresses<tp::tcp> several(where, 10s, seen);
  const auto mine = blank<mlp>();
  std::uint64_t at_death = 0, back = 0, last = 0;
  auto progress = [&](const tp::progress_event& e) {
    if (e.bytes_done < last) ++back;
    last = e.bytes_done;
    if (e.bytes_done > 0 && at_death == 0) at_death = e.bytes_done, a.end();
  };
  const auto done = net::download_tensors(
      several, {id, 0, 0}, *mine, {.window = 1, .retry = quick, .progress = progress, .progress_interval = 0ms});
  ASSERT_TRUE(completed(done));
  EXPECT_GT(at_death, 0u);
  EXPECT_LT(at_death, done->bytes) << "it died in the middle";
  EXPECT_EQ(back, 0u);
  EXPECT_EQ(several.current(), 1u);
  EXPECT_TRUE(done->confirmed);
  const auto sent = (*b.owner)->status_of({id, 0, 0});
  ASSERT_TRUE(sent);
  EXPECT_LT(sent->bytes_sent, done->bytes) << "the second sent what was missing";
}

TEST(SeveralAddresses, Another_version_at_the_next_address_is_stale_and_never_mixed) {
  running a(1), b(2);
  const std::array<std::string_view, 2> where{a.where, b.where};
  const tp::several_addresses<tp::tcp> several(where);
  const auto mine = blank<mlp>();
  auto progress = [&](const tp::progress_event& e) {
    if (e.bytes_done > 0) a.end();
  };
  const auto done = net::download_tensors(
      several, {id, 0, 0}, *mine, {.window = 1, .retry = quick, .progress = progress, .progress_interval = 0ms});
  ASSERT_EQ(code_of(done), tp::errc::stale_version);
  EXPECT_EQ(several.current(), 1u) << "who refused it";
}

TEST(SeveralAddresses, The_error_is_one_after_which_another_try_may_succeed) {
  const std::string dead = nobody();
  const std::array<std::string_view, 2> where{dead, "no address"};
  attempts seen;
  const tp::several_addresses<tp::tcp> several(where, 10s, seen);
  const auto mine = blank<mlp>();
  const auto done = net::download_tensors(several, {id, 0, 0}, *mine, {.retry = quick});
  ASSERT_EQ(code_of(done), tp::errc::connection_failed);
  EXPECT_EQ(seen.all.size(), 2u * (1 + quick.retries));
  const tp::several_addresses<tp::tcp> none(std::span<const std::string_view>{});
  EXPECT_EQ(net::download_tensors(none, {id, 0, 0}, *mine, {.retry = quick}).error().code, tp::errc::bad_address);
  const std::array<std::string_view, 2> wrong{"no address", "neither"};
  EXPECT_EQ(
      net::download_tensors(tp::several_addresses<tp::tcp>(wrong), {id, 0, 0}, *mine, {.retry = quick}).error().code,
      tp::errc::bad_address);
}

}  // namespace several_addresses_test
