// What parties that belong to no transfer can do to one, over every transport that reaches an owner by an address: they
// can send to both ends, as often as they like, but not read what the ends say to each other. A room of laws.hpp that
// says who they are (`third_parties`) has to keep what is said here. A serial line has no third party: who can write to
// it is one of its ends.
#pragma once

#include "laws.hpp"
#include "network.hpp"
#include "support/clocks.hpp"
#include "support/process_entries.hpp"
#include "support/sanitizers.hpp"
#include "support/strangers.hpp"
#include "support/threads.hpp"

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
  std::size_t sockets = 0;  ///< that it holds at a time
};

/// The strangers at a driver that accepts connections, in numbers that are above its places. `connect() -> Peer`.
template <class Connect>
std::vector<third_party> strangers_in_numbers(Connect connect, std::size_t count) {
  std::vector<third_party> rows;
  for (const stranger_habit& habit : stranger_habits()) {
    const bool leaves = habit.next == stranger_habit::then::leaves;
    rows.push_back({habit.name,
                    [=](const std::stop_token& stop, std::atomic<bool>& acts) {
                      // a host that is full sends silent ones away after a second
                      const fast_clock fast(leaves ? 1 : 10);
                      crowd all(connect, habit, count);
                      while (!stop.stop_requested()) {
                        all.act(stop);
                        acts = true;
                        be_slow(leaves ? 5ms : 20ms);
                      }
                    },
                    0, count});
  }
  return rows;
}

/// The strangers that a driver calls: each accepts connections of `listener`, which has next(time) -> optional<Peer>.
template <class Listener>
std::vector<third_party> strangers_that_are_called(Listener& listener, std::size_t count) {
  std::vector<third_party> rows;
  for (const stranger_habit& habit : stranger_habits())
    rows.push_back({habit.name,
                    [&listener, habit, count](const std::stop_token& stop, std::atomic<bool>& acts) {
                      using peer = strange_peer<std::remove_cvref_t<decltype(*listener.next(1ms))>>;
                      std::vector<peer> all;
                      while (!stop.stop_requested()) {
                        acts = true;
                        if (auto p = listener.next(20ms)) all.emplace_back(std::move(*p), habit);
                        if (habit.next == stranger_habit::then::leaves) all.clear();
                        std::erase_if(all, [](auto& p) { return !p.goes_on(); });
                        if (all.size() > count) all.erase(all.begin());
                      }
                    },
                    0, count});
  return rows;
}

/// The places of the rooms' owners, each for one connection, and what a place may take.
constexpr std::size_t most_places = 16;
template <class Transport>
constexpr std::size_t place_bytes() {
  if constexpr (requires { Transport::handshake_bytes; }) return Transport::handshake_bytes;
  else return Transport::connection_bytes + 64_KiB;
}

/// Places of all owners of a room: a replica and its coordinator have some each.
template <class Room>
constexpr std::size_t places_of() {
  if constexpr (requires { Room::owners; }) return Room::owners * most_places;
  else return most_places;
}

/// A room of Laws with
///   - `third_parties(reference)`: who acts beside transfers of it;
///   - optionally `published(owner, reference)`: is told of each publication, before it is pulled;
///   - optionally `read_besides`: bytes of the image that a pull reads and that do not land;
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
    const std::size_t had = descriptors();
    [[maybe_unused]] const std::size_t held = resident_bytes();  // not with the sanitizers
    {
      std::atomic<bool> acts{false};
      const joined_thread other([&](const std::stop_token& stop) { who.run(stop, acts); });
      ASSERT_TRUE(eventually("a third party has done all that it can do", [&] { return acts.load(); }));
      pull();
      // the strangers' own ends are of this process, too
      EXPECT_LE(descriptors(), had + who.sockets + places_of<TypeParam>() + 16) << "descriptors";
#ifndef TENSORPULL_TEST_SANITIZED
      EXPECT_LE(resident_bytes(), held + who.sockets * 64_KiB +
                                      places_of<TypeParam>() * place_bytes<typename TypeParam::transport>() + 8_MiB)
          << "memory";
#endif
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
      std::uint64_t most = 3 * TestFixture::image_bytes;
      if constexpr (requires { TypeParam::read_besides; }) most += 3 * TypeParam::read_besides;
      EXPECT_LE(status->bytes_sent, most);
    } else {
      EXPECT_LE(status->bytes_sent, 4 * TestFixture::image_bytes) << "what is asked for again";
    }
  }
}

REGISTER_TYPED_TEST_SUITE_P(ThirdParties, Honest_transfers_complete_and_cost_what_they_cost_alone);

/// An owner with few places, whose budgets end nobody: only that others wait does.
constexpr std::size_t few_places = 8;
inline tp::host_options crowded(const tp::authorise_callback& may = {}) {
  return {.max_connections = few_places, .budgets = {.accept = 600s, .stall = 600s, .idle = 600s}, .authorise = may};
}

}  // namespace test
