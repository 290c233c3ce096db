// What parties that belong to no transfer can do to one, over every transport that reaches an owner by an address: they
// can send to both ends, as often as they like, but not read what the ends say to each other. A room of laws.hpp that
// says who they are (`third_parties`) has to keep what is said here. A serial line has no third party: who can write to
// it is one of its ends.
#pragma once

#include "laws.hpp"
#include "network.hpp"
#include "support/clocks.hpp"
#include "support/frames.hpp"

#include <atomic>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

namespace test {

/// Somebody who acts until told to stop, and says when everything that it can do has been done once.
struct third_party {
  std::string name;
  std::function<void(const std::stop_token& stop, std::atomic<bool>& acts)> run;
  std::uint32_t asks = 0;  ///< as how many recipients it asks for the reference, if it knows that
};

/// A room of Laws with
///   - `third_parties(reference)`: who acts beside transfers of it;
///   - optionally `published(owner, reference)`: is told of each publication, before it is pulled;
///   - optionally `work()`: how much the ends have done so far, in steps that do not depend on time, such as datagrams
///   that were handed to the system.
template <class Room>
class ThirdParties : public Laws<Room> {};

TYPED_TEST_SUITE_P(ThirdParties);

TYPED_TEST_P(ThirdParties, Honest_transfers_complete_and_cost_what_they_cost_alone) {
  const auto work = [&]() -> std::uint64_t {
    if constexpr (requires { this->room->work(); }) return this->room->work();
    else return 0;
  };
  for (const third_party& who : this->room->third_parties()) {
    SCOPED_TRACE(who.name);
    const auto ref = this->add({.recipients = 3});
    if constexpr (requires { this->room->published(*this->source, ref); }) this->room->published(*this->source, ref);
    this->serve();
    const auto pull = [&] {
      this->mine = blank<mlp>();
      const auto done = this->pull(ref, {.per_request_timeout = 100s, .retry = {.retries = 20}});
      this->expect_arrived(done);
      if (done) {
        EXPECT_EQ(done->version, ref.version);
      }
    };
    const std::uint64_t before = work();
    pull();
    const std::uint64_t alone = work() - before;
    {
      std::atomic<bool> acts{false};
      const joined_thread other([&](const std::stop_token& stop) { who.run(stop, acts); });
      ASSERT_TRUE(eventually("a third party has done all that it can do", [&] { return acts.load(); }));
      pull();
      const std::uint64_t since = work();
      pull();
      EXPECT_LE(work() - since, 4 * alone + 96) << alone << " alone";  // a busy machine asks again
    }
    ASSERT_TRUE(this->hears([&] { return this->owner->settled(ref); }));
    const auto status = this->owner->status_of(ref);
    EXPECT_EQ(status->acquired, 3u + who.asks) << "a third party is no recipient";
    EXPECT_EQ(status->completed, 3u);
    EXPECT_EQ(this->owner->settlement_of(ref)->verdict, tp::verdict::completed);
    if constexpr (TestFixture::exact) {
      EXPECT_LE(status->bytes_sent, 3 * TestFixture::image_bytes);
    } else {
      EXPECT_LE(status->bytes_sent, 4 * TestFixture::image_bytes) << "what is asked for again";
    }
  }
}

REGISTER_TYPED_TEST_SUITE_P(ThirdParties, Honest_transfers_complete_and_cost_what_they_cost_alone);

/// The strangers of a stream, in numbers that are above the places of its owner. `connect() -> Peer`: a connection that
/// can say(bytes), reset(), and knows whether it has ended().
template <class Connect>
std::vector<third_party> strangers_in_numbers(Connect connect, std::size_t count) {
  const auto say_first = [=](byte_vector first) {
    return [=](const std::stop_token& stop, std::atomic<bool>& acts) {
      using peer = decltype(connect());
      const fast_clock fast(10);  // a host that is full sends silent ones away after a second
      std::vector<peer> all;
      while (!stop.stop_requested()) {
        std::erase_if(all, [](auto& p) { return p.ended(); });
        while (all.size() < count && !stop.stop_requested()) {  // those that were sent away come again
          all.push_back(connect());
          if (!first.empty()) (void)all.back().say(first);
        }
        acts = true;
        be_slow(20ms);
      }
    };
  };
  auto asks = request(tp::frame_kind::describe, 1, {1234, 5678}, 0, 0);
  auto half = asks;
  half.resize(half.size() / 2);
  const auto comes_and_goes = [=](const std::stop_token& stop, std::atomic<bool>& acts) {
    while (!stop.stop_requested()) {
      for (std::size_t i = 0; i < count; ++i) connect().reset();
      acts = true;
      be_slow(5ms);
    }
  };
  return {{"silent ones", say_first({})},
          {"ones that ask for what is not there", say_first(asks)},
          {"ones that stop in the middle of a request", say_first(half)},
          {"ones that come and go", comes_and_goes}};
}
/// An owner with few places, whose budgets end nobody: only that others wait does.
constexpr std::size_t few_places = 8;
inline tp::host_options crowded(const tp::authorise_callback& may = {}) {
  return {.max_connections = few_places, .budgets = {.accept = 600s, .stall = 600s, .idle = 600s}, .authorise = may};
}

}  // namespace test
