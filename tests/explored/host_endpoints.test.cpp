// All schedules of two recipients that pull two references of an owner over streams, as far as the faults of each case
// go.
#include "explored/host_world.hpp"

#include <gtest/gtest.h>

#include <memory>

namespace explored_hosts_test {

using namespace test;
using namespace test::hosts;

constexpr setting usual{};
constexpr setting apart{.together = false};
constexpr setting by_number{.counts = counting::by_number};
constexpr setting of_unknown_number{.counts = counting::unknown};
constexpr setting of_a_version{.pinned = true};
/// The owner has room for what it publishes first, and for nothing else.
constexpr setting in_a_full_table{.references = 2, .records = 4};
constexpr setting by_number_in_a_full_table{.counts = counting::by_number, .references = 2, .records = 4};

/// One transition costs as much as eight of small machines.
void explore(const setting& s, const faults& f) {
  explore_world(*std::make_unique<host_world>(s, f), transitions_of_a_search(8, 600'000, 20));
}

TEST(HostEndpoints, Without_a_fault_and_parts_of_frames) {
  explore(usual, {.splits = 2});
  explore(apart, {.splits = 1});
  explore(by_number, {.splits = 1});
  explore(of_unknown_number, {.splits = 1});
  explore(of_a_version, {.splits = 1});
}
TEST(HostEndpoints, Connections_that_break) {
  explore(usual, {.breaks = 1, .splits = 1});
  explore(usual, {.breaks = 2});
  explore(apart, {.breaks = 1});
  explore(by_number, {.breaks = 1});
  explore(of_unknown_number, {.breaks = 1});
}
TEST(HostEndpoints, A_recipient_that_starts_again) {
  explore(usual, {.recipient_restarts = 1, .splits = 1});
  explore(by_number, {.recipient_restarts = 1});
  explore(of_a_version, {.breaks = 1, .recipient_restarts = 1});
  explore(apart, {.recipient_restarts = 2});
}
TEST(HostEndpoints, An_owner_that_starts_again) {
  explore(usual, {.owner_restarts = 1, .splits = 1});
  explore(apart, {.breaks = 1, .owner_restarts = 1});
  explore(of_a_version, {.owner_restarts = 1});
}
TEST(HostEndpoints, The_same_is_published_again) {
  explore(usual, {.same = 1, .splits = 1});
  explore(apart, {.same = 2});
  explore(in_a_full_table, {.same = 1});
}
TEST(HostEndpoints, Something_else_is_published) {
  explore(usual, {.other = 1, .splits = 1});
  explore(apart, {.same = 1, .other = 1});
  explore(of_a_version, {.other = 1});
  explore(in_a_full_table, {.other = 1});
}
TEST(HostEndpoints, References_that_are_withdrawn) {
  explore(usual, {.withdrawals = 1, .splits = 1});
  explore(usual, {.withdrawals = 2});
  explore(apart, {.breaks = 1, .withdrawals = 1});
  explore(by_number, {.withdrawals = 1});
  explore(of_unknown_number, {.withdrawals = 2});
}
TEST(HostEndpoints, A_recipient_that_gives_up) {
  explore(usual, {.give_ups = 2, .splits = 1});
  explore(usual, {.breaks = 1, .give_ups = 1});
  explore(apart, {.give_ups = 2});
  explore(by_number, {.give_ups = 1});
}
TEST(HostEndpoints, Time_that_passes) {
  explore(usual, {.ticks = 2});
  explore(usual, {.breaks = 1, .ticks = 1});
  explore(apart, {.ticks = 2});
  explore(by_number, {.ticks = 1});
  explore(of_unknown_number, {.ticks = 1});
  explore(usual, {.ticks = 1, .give_ups = 1});
}
TEST(HostEndpoints, A_stranger) {
  explore(usual, {.strangers = 1});
  explore(usual, {.strangers = 2});
  explore(in_a_full_table, {.strangers = 1});
  explore(by_number_in_a_full_table, {.strangers = 1});
  explore(by_number, {.strangers = 1});
}
TEST(HostEndpoints, Bytes_that_lie) {
  explore(usual, {.lies_up = 1});
  explore(usual, {.lies_down = 1});
  explore(of_a_version, {.lies_down = 1});
  explore(usual, {.breaks = 1, .lies_up = 1});
  explore(usual, {.breaks = 1, .lies_down = 1});
  explore(apart, {.other = 1, .lies_down = 1});
}

}  // namespace explored_hosts_test
