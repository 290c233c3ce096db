// The records of recipients: found, made, and reused when there is no room, at a bounded cost for each request.
#include "support/models.hpp"

#include <tensorpull/protocol/owner/detail/recipient_table.hpp>

#include <gtest/gtest.h>

namespace recipient_table_test {

namespace tp = tensorpull;
using table = tp::detail::recipient_table;

struct records {
  explicit records(std::size_t n) : memory(n), buckets(n), all(memory, buckets) {}
  /// `judge` is counted.
  tp::recipient_record* add(std::uint64_t who, table::worth judged = table::current) {
    looks = 0;
    const auto judge = [&](const tp::recipient_record& r) {
      ++looks;
      return r.slot == 1 ? table::gone : judged;
    };
    return all.add({1, 2}, {who}, judge, [&](const tp::recipient_record&) { ++forgotten; });
  }
  std::vector<tp::recipient_record> memory;
  std::vector<std::uint32_t> buckets;
  table all;
  std::size_t looks = 0, forgotten = 0;
};

TEST(RecipientTable, Room_is_used_before_anybody_is_forgotten) {
  records r(500);
  for (std::uint64_t who = 1; who <= 500; ++who) ASSERT_NE(r.add(who), nullptr);
  EXPECT_EQ(r.forgotten, 0u);
  for (std::uint64_t who = 1; who <= 500; ++who) EXPECT_NE(r.all.find({1, 2}, {who}), nullptr);
  r.all.remove(*r.all.find({1, 2}, {77}));
  EXPECT_EQ(r.all.find({1, 2}, {77}), nullptr);
  ASSERT_NE(r.add(501), nullptr);
  EXPECT_EQ(r.forgotten, 0u);
}

TEST(RecipientTable, In_a_full_table_a_new_recipient_costs_a_look_at_a_bounded_number_of_records) {
  records r(2048);
  for (std::uint64_t who = 1; who <= 2048; ++who) r.add(who);
  std::size_t most = 0;
  for (std::uint64_t who = 2049; who <= 6000; ++who) {
    ASSERT_NE(r.add(who), nullptr);
    most = std::max(most, r.looks);
  }
  EXPECT_LE(most, table::looked_at);
  EXPECT_EQ(r.forgotten, 6000u - 2048);
}

TEST(RecipientTable, Strangers_who_took_nothing_are_forgotten_before_who_took_something) {
  records r(2048);
  for (std::uint64_t who = 1; who <= 2048; ++who) r.add(who)->bytes = who % 8 == 0 ? 1000 : 0;
  for (std::uint64_t who = 10'000; who < 30'000; ++who) ASSERT_NE(r.add(who), nullptr);
  for (std::uint64_t who = 8; who <= 2048; who += 8) EXPECT_NE(r.all.find({1, 2}, {who}), nullptr) << who;
}

TEST(RecipientTable, Records_of_connected_expected_and_counted_recipients_stay_and_those_of_the_gone_go_first) {
  records r(100);
  for (std::uint64_t who = 1; who <= 100; ++who) {
    tp::recipient_record& x = *r.add(who);
    if (who % 2 == 0) x.connection = 1;
    else x.expected = true;
  }
  EXPECT_EQ(r.add(101), nullptr);
  r.all.find({1, 2}, {51})->slot = 1;
  EXPECT_NE(r.add(101), nullptr);
  EXPECT_EQ(r.all.find({1, 2}, {51}), nullptr);
  r.all.find({1, 2}, {60})->connection = 0;
  EXPECT_EQ(r.add(102, table::counted_on), nullptr);
  r.all.find({1, 2}, {60})->connection = 0;
  EXPECT_NE(r.add(102), nullptr);
  EXPECT_EQ(r.all.find({1, 2}, {60}), nullptr);
}

}  // namespace recipient_table_test
