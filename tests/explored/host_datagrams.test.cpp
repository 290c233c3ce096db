// All schedules of two recipients that pull two references of an owner over datagrams, as far as the faults of each
// case go.
#include "explored/datagram_world.hpp"

#include <gtest/gtest.h>

#include <memory>

namespace explored_datagrams_test {

using namespace test;
using namespace test::hosts;

struct in_place {
  using landing = in_any_order;
  using integrity = tiny_digest;
};
struct one_after_the_other : in_place {
  using landing = in_order;
};
struct checked : in_place {
  using integrity = tiny_chunk_digests;
};
struct checked_in_order : one_after_the_other {
  using integrity = tiny_chunk_digests;
};

constexpr setting usual{};
constexpr setting apart{.together = false};
constexpr setting by_number{.counts = counting::by_number};
constexpr setting of_a_version{.pinned = true};
constexpr setting by_name{.by_name = true};
/// The description travels in pieces, and each chunk alone.
constexpr setting by_radio{.datagram_bytes = 128};
/// With names a request in pieces and its answer take two buffers.
constexpr setting by_name_by_radio{.by_name = true, .buffers = 2, .datagram_bytes = 128};
/// No memory for chunks that arrive early, or for one.
constexpr setting holding_none{.held_bytes = 0};
constexpr setting holding_one{.held_bytes = 32};
constexpr setting with_a_look{.second_looks = true};
constexpr setting joining{.together = false, .joins = true};

/// One transition costs as much as eight of small machines.
template <class How = in_place>
void explore(const setting& s, const faults& f) {
  explore_world(*std::make_unique<datagram_world<How>>(s, f), transitions_of_a_search(8, 600'000, 30));
}

TEST(HostDatagrams, Without_a_fault) {
  explore(usual, {});
  explore(by_radio, {});
  explore<one_after_the_other>(holding_none, {});
  explore<one_after_the_other>(usual, {});
  explore<checked>(usual, {});
  explore<checked_in_order>(usual, {});
}
TEST(HostDatagrams, A_link_that_loses_doubles_and_reorders) {
  explore(usual, {.losses = 2});
  explore(usual, {.losses = 1, .doubles = 1, .overtakes = 1});
  explore(apart, {.doubles = 2, .overtakes = 1});
  explore(usual, {.losses = 1, .overtakes = 1, .early = 2});
  explore(by_radio, {.losses = 1, .doubles = 1, .overtakes = 1});
  explore<one_after_the_other>(holding_none, {.losses = 1, .doubles = 1, .overtakes = 1});
  explore<one_after_the_other>(holding_one, {.losses = 1, .overtakes = 1});
  explore<one_after_the_other>(usual, {.losses = 1, .overtakes = 1});
  explore<checked>(usual, {.losses = 1, .doubles = 1, .overtakes = 1});
}
TEST(HostDatagrams, A_consumer_that_has_no_memory_for_a_while) {
  explore<one_after_the_other>(holding_none, {.splits = 1, .losses = 1});
  explore<one_after_the_other>(holding_one, {.splits = 1, .overtakes = 1});
  explore<one_after_the_other>(usual, {.splits = 2, .overtakes = 1});
  explore<checked_in_order>(usual, {.splits = 1, .overtakes = 1, .damages = 1});
}
TEST(HostDatagrams, A_recipient_that_starts_again) {
  explore(usual, {.recipient_restarts = 1, .overtakes = 1});
  explore(usual, {.recipient_restarts = 2});
  explore(apart, {.recipient_restarts = 1, .doubles = 1});
  explore(by_number, {.recipient_restarts = 1});
  explore(of_a_version, {.recipient_restarts = 1, .losses = 1});
  explore<one_after_the_other>(usual, {.recipient_restarts = 1, .overtakes = 1});
  explore<checked>(usual, {.recipient_restarts = 1, .damages = 1});
  explore(by_radio, {.recipient_restarts = 1});
}
TEST(HostDatagrams, A_recipient_that_goes_on_over_another_link) {
  explore(usual, {.overtakes = 1, .moves = 1});
  explore(usual, {.losses = 1, .moves = 2});
  explore<checked>(usual, {.overtakes = 1, .moves = 1});
  explore(by_number, {.moves = 1});
}
TEST(HostDatagrams, An_owner_that_starts_again_or_forgets) {
  explore(usual, {.owner_restarts = 1, .overtakes = 1});
  explore(apart, {.owner_restarts = 1, .losses = 1});
  explore(usual, {.overtakes = 1, .forgets = 1});
  explore(usual, {.owner_restarts = 1, .forgets = 1});
  explore(of_a_version, {.recipient_restarts = 1, .owner_restarts = 1});
  explore<one_after_the_other>(holding_one, {.owner_restarts = 1});
  explore(by_radio, {.owner_restarts = 1});
}
TEST(HostDatagrams, A_reference_that_is_published_again_or_withdrawn) {
  explore(usual, {.same = 1, .overtakes = 1});
  explore(apart, {.same = 2});
  explore(usual, {.other = 1, .losses = 1});
  explore(apart, {.same = 1, .other = 1});
  explore(of_a_version, {.other = 1});
  explore(usual, {.withdrawals = 1, .overtakes = 1});
  explore(apart, {.withdrawals = 2});
  explore<checked>(usual, {.same = 1, .overtakes = 1});
}
TEST(HostDatagrams, A_recipient_that_gives_up_and_time_that_passes) {
  explore(usual, {.give_ups = 2, .losses = 1});
  explore(apart, {.give_ups = 1, .overtakes = 1});
  explore(usual, {.ticks = 2, .losses = 1});
  explore(apart, {.ticks = 1, .early = 1});
  explore(by_number, {.ticks = 1});
}
TEST(HostDatagrams, Chunks_that_are_damaged) {
  explore<checked>(usual, {.damages = 2});
  explore<checked>(usual, {.overtakes = 1, .damages = 1});
  explore<checked_in_order>(usual, {.damages = 4});
  explore(usual, {.damages = 1});
}
TEST(HostDatagrams, A_stranger) {
  explore(usual, {.strangers = 1});
  explore(usual, {.strangers = 2});
  explore(by_number, {.strangers = 1});
  explore(by_radio, {.strangers = 1});
}
TEST(HostDatagrams, Datagrams_that_lie) {
  explore(usual, {.lies_up = 1});
  explore(usual, {.lies_down = 1});
  explore(of_a_version, {.lies_down = 1});
  explore<one_after_the_other>(usual, {.lies_down = 1});
  explore<checked>(usual, {.lies_down = 1});
  explore<checked>(usual, {.lies_up = 1});
  explore(by_radio, {.lies_up = 1});
  explore(by_radio, {.lies_down = 1});
  explore(usual, {.lies_down = 1, .overtakes = 1});
  explore(apart, {.other = 1, .lies_down = 1});
}

TEST(HostDatagrams, A_tensor_by_its_name) {
  explore(by_name, {});
  explore(by_name, {.losses = 1, .doubles = 1, .overtakes = 1});
  explore(by_name, {.recipient_restarts = 1, .owner_restarts = 1});
  explore(by_name, {.same = 1, .overtakes = 1});
  explore(by_name, {.other = 1, .losses = 1});
  explore(by_name, {.withdrawals = 1, .moves = 1});
  explore(by_name, {.lies_down = 1});
  explore(by_name, {.lies_up = 1});
  explore(by_name_by_radio, {.losses = 1, .overtakes = 1});
}
TEST(HostDatagrams, One_that_only_looks) {
  explore(with_a_look, {.losses = 2});
  explore(with_a_look, {.losses = 1, .doubles = 1, .overtakes = 1});
  explore(with_a_look, {.recipient_restarts = 1, .ticks = 1});
  explore(with_a_look, {.same = 1, .moves = 1});
}
TEST(HostDatagrams, A_reference_that_joins) {
  explore(joining, {.losses = 1, .overtakes = 1});
  explore(joining, {.recipient_restarts = 1});
  explore(joining, {.give_ups = 1, .moves = 1});
}

}  // namespace explored_datagrams_test
