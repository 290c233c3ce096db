#include <tensorpull/embedded/cursor_slots.hpp>

#include "simulated_flash.hpp"
#include "support/whole_schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

namespace cursor_slots_test {

using namespace tensorpull;
using test::power_cut;

// clang-format off: a table
struct byte_units : test::simulated_flash<200, 1> { using simulated_flash::simulated_flash; };
struct word_units : test::simulated_flash<256, 4> { using simulated_flash::simulated_flash; };
struct long_units : test::simulated_flash<512, 16> { using simulated_flash::simulated_flash; };
struct one_a_page : test::simulated_flash<64, 8> { using simulated_flash::simulated_flash; };
// clang-format on
static_assert(cursor_slots<byte_units>::records_per_page == 3 && cursor_slots<word_units>::records_per_page == 4);
static_assert(cursor_slots<long_units>::record_bytes == 80 && cursor_slots<long_units>::records_per_page == 6 &&
              cursor_slots<one_a_page>::records_per_page == 1);

resume_cursor cursor_of(std::uint64_t n) { return {{n * 3 + 1, n * 5 + 2}, n * 7, n * 11 + 1, n + 1, n * 13}; }

template <class Flash>
struct unit {
  unit() = default;
  explicit unit(std::uint64_t n) {
    for (std::size_t i = 0; i < sizeof bytes; ++i) bytes[i] = static_cast<std::byte>(n * 31 + i);
  }
  bool operator==(const unit&) const = default;
  std::byte bytes[Flash::program_bytes]{};
};

/// What a program that starts now finds.
template <class Flash>
resume_cursor found(Flash& flash, unit<Flash>& with, std::uint32_t page = 1) {
  return cursor_slots<Flash>(flash, page).load(with.bytes);
}
template <class Flash>
resume_cursor found(Flash& flash) {
  unit<Flash> with;
  return found(flash, with);
}

template <class Flash>
class CursorSlots : public testing::Test {};
using flashes = testing::Types<byte_units, word_units, long_units, one_a_page>;
TYPED_TEST_SUITE(CursorSlots, flashes);

TYPED_TEST(CursorSlots, Find_nothing_in_flash_that_holds_something_else) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    TypeParam flash(4, seed, seed == 0);
    EXPECT_FALSE(found(flash));
  }
  TypeParam zeros(4, 1);
  std::fill(zeros.bytes().begin(), zeros.bytes().end(), std::byte{0});
  EXPECT_FALSE(found(zeros));
}

TYPED_TEST(CursorSlots, Give_the_newest_cursor_with_its_unit) {
  TypeParam flash(4, 7);
  const auto before = flash.bytes();
  cursor_slots<TypeParam> slots(flash, 1);
  unit<TypeParam> read;
  EXPECT_FALSE(slots.load(read.bytes));
  for (std::uint64_t n = 0; n < 40; ++n) {
    ASSERT_TRUE(slots.store(cursor_of(n), unit<TypeParam>(n).bytes));
    ASSERT_EQ(found(flash, read), cursor_of(n));
    ASSERT_EQ(read, unit<TypeParam>(n));
    ASSERT_EQ(slots.load(read.bytes), cursor_of(n)) << "the same object reads it again, too";
  }
  ASSERT_TRUE(slots.store({}, unit<TypeParam>().bytes));
  EXPECT_FALSE(found(flash)) << "an empty cursor says that there is none";
  EXPECT_EQ(flash.complaint(), "");
  for (const std::size_t page : {0u, 3u})
    EXPECT_TRUE(std::ranges::equal(std::span(before).subspan(page * flash.page_bytes, flash.page_bytes),
                                   std::span(flash.bytes()).subspan(page * flash.page_bytes, flash.page_bytes)));
}

TYPED_TEST(CursorSlots, Wear_both_pages_alike) {
  constexpr std::uint64_t each = cursor_slots<TypeParam>::records_per_page, records = 20 * each;
  TypeParam flash(4, 7);
  cursor_slots<TypeParam> slots(flash, 1);
  unit<TypeParam> read;
  (void)slots.load(read.bytes);
  for (std::uint64_t n = 0; n < records; ++n) ASSERT_TRUE(slots.store(cursor_of(n), read.bytes));
  EXPECT_EQ(flash.erases(1), 10u);
  EXPECT_EQ(flash.erases(2), 10u);
  EXPECT_EQ(flash.programs(), records);
  for (std::uint64_t start = 0; start < 10; ++start) {  // programs that start anew and store one cursor each
    cursor_slots<TypeParam> again(flash, 1);
    (void)again.load(read.bytes);
    ASSERT_TRUE(again.store(cursor_of(start), read.bytes));
  }
  EXPECT_EQ(flash.erases(1) + flash.erases(2), 20u + 10u);
  EXPECT_EQ(flash.erases(1), 15u);
  EXPECT_EQ(flash.complaint(), "");
}

TYPED_TEST(CursorSlots, Survive_a_power_cut_at_every_operation) {
  constexpr std::uint64_t records = 3 * cursor_slots<TypeParam>::records_per_page + 1;
  std::uint64_t torn = 0, lost = 0;
  for (const power_cut kind : {power_cut::before, power_cut::within, power_cut::after})
    for (std::uint64_t at = 0;; ++at) {
      bool done = false;
      for (std::uint64_t seed = 0; seed < test::repetitions(kind == power_cut::within ? 40 : 1); ++seed) {
        TypeParam flash(4, seed * 1000 + at);
        std::uint64_t stored = 0;
        {
          cursor_slots<TypeParam> slots(flash, 1);
          unit<TypeParam> read;
          (void)slots.load(read.bytes);
          flash.cut_after(at, kind);
          while (stored < records && slots.store(cursor_of(stored), unit<TypeParam>(stored).bytes)) ++stored;
        }
        done = stored == records;
        flash.restart();
        unit<TypeParam> read;
        const resume_cursor now = found(flash, read);
        // the record that was under way is there, or the one before it
        const bool this_one = now == cursor_of(stored), before = stored == 0 ? !now : now == cursor_of(stored - 1);
        if (!done) {
          ASSERT_TRUE(this_one || before) << "operation " << at << " seed " << seed;
          if (now) {
            ASSERT_EQ(read, unit<TypeParam>(this_one ? stored : stored - 1));
          }
          if (kind == power_cut::after) lost += before;  // only when the operation was the erase
          torn += kind == power_cut::within && before;
        }
        cursor_slots<TypeParam> again(flash, 1);
        (void)again.load(read.bytes);
        for (std::uint64_t n = 100; n < 100 + records; ++n) {
          ASSERT_TRUE(again.store(cursor_of(n), unit<TypeParam>(n).bytes));
          ASSERT_EQ(found(flash), cursor_of(n)) << "operation " << at << " seed " << seed;
        }
        ASSERT_EQ(flash.complaint(), "");
      }
      if (done) break;
    }
  EXPECT_GT(torn, test::repetitions(100));
  EXPECT_EQ(lost, 4u);
}

TYPED_TEST(CursorSlots, Believe_no_record_of_which_a_bit_has_changed) {
  constexpr std::uint32_t record_bytes = cursor_slots<TypeParam>::record_bytes;
  TypeParam flash(4, 7);
  cursor_slots<TypeParam> slots(flash, 1);
  unit<TypeParam> read;
  (void)slots.load(read.bytes);
  const std::uint64_t last = cursor_slots<TypeParam>::records_per_page + 1;
  for (std::uint64_t n = 0; n <= last; ++n) ASSERT_TRUE(slots.store(cursor_of(n), unit<TypeParam>(n).bytes));
  std::uint64_t older = 0;
  for (std::uint64_t bit = 0; bit < 2 * flash.page_bytes * 8; ++bit) {
    std::byte& b = flash.bytes()[flash.page_bytes + bit / 8];
    b ^= std::byte{1} << static_cast<int>(bit % 8);
    const resume_cursor now = found(flash, read);
    ASSERT_TRUE(now == cursor_of(last) || now == cursor_of(last - 1)) << "bit " << bit;
    ASSERT_EQ(read, unit<TypeParam>(now == cursor_of(last) ? last : last - 1));
    older += now != cursor_of(last);
    b ^= std::byte{1} << static_cast<int>(bit % 8);
  }
  EXPECT_EQ(older, record_bytes * 8) << "every bit of the newest record counts, and no other";
}

TYPED_TEST(CursorSlots, Count_on_behind_the_largest_number) {
  constexpr std::uint32_t record_bytes = cursor_slots<TypeParam>::record_bytes;
  for (std::uint32_t first = 0xfffffff8u; first != 2; ++first) {
    TypeParam flash(4, 7, true);
    // a record as the class writes it, with a number that it would reach after years
    std::vector<std::byte> record(record_bytes);
    const resume_cursor cursor = cursor_of(1000);
    std::memcpy(record.data(), &cursor, sizeof cursor);
    std::memcpy(record.data() + record_bytes - 8, &first, 4);
    const std::uint32_t crc = crc32c_fast::of(std::span(record).first(record_bytes - 4));
    std::memcpy(record.data() + record_bytes - 4, &crc, 4);
    ASSERT_TRUE(flash.erase(2));
    ASSERT_TRUE(flash.program(2 * flash.page_bytes, record));
    ASSERT_EQ(found(flash), cursor_of(1000));
    cursor_slots<TypeParam> slots(flash, 1);
    unit<TypeParam> read;
    (void)slots.load(read.bytes);
    for (std::uint64_t n = 0; n < 20; ++n) {
      ASSERT_TRUE(slots.store(cursor_of(n), read.bytes));
      ASSERT_EQ(found(flash), cursor_of(n)) << "number " << first << " and " << n + 1 << " more";
    }
  }
}

TYPED_TEST(CursorSlots, Say_when_the_flash_fails) {
  TypeParam flash(2, 7);  // the pages 1 and 2, of which there is only one
  cursor_slots<TypeParam> slots(flash, 1);
  unit<TypeParam> read;
  EXPECT_FALSE(slots.load(read.bytes));
  std::uint64_t stored = 0;
  while (slots.store(cursor_of(stored), read.bytes)) ++stored;
  EXPECT_EQ(stored, cursor_slots<TypeParam>::records_per_page);
  EXPECT_EQ(slots.load(read.bytes), cursor_of(stored - 1));
  EXPECT_EQ(flash.complaint(), "a page outside was erased");
}

}  // namespace cursor_slots_test
