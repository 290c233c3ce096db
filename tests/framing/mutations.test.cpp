// Valid frames with something changed: whatever comes out, it points into the frame, and nothing throws or reads
// outside.
#include <tensorpull/core/byte_order.hpp>
#include "support/messages.hpp"
#include "support/random.hpp"

namespace mutations_test {

using namespace test;

/// Views point into the frame, into the storage, or are empty. Gives the number of values looked at.
std::uint64_t check_views(const decoded& d) {
  if (!d.outcome) return 0;
  const auto inside = [](const void* p, std::size_t n, const void* from, std::size_t size) {
    const auto a = reinterpret_cast<std::uintptr_t>(p), b = reinterpret_cast<std::uintptr_t>(from);
    return n == 0 || (a >= b && n <= size && a - b <= size - n);
  };
  const auto in_frame = [&](const void* p, std::size_t n) {
    return inside(p, n, d.from.bytes().data(), d.from.size());
  };
  const auto in_storage = [&](const void* p, std::size_t n) { return inside(p, n, &d.lists, sizeof d.lists); };
  std::uint64_t sum = 0;
  for (const auto& r : d.m.rows) {
    EXPECT_TRUE(in_frame(r.name.data(), r.name.size()) && in_frame(r.dtype.data(), r.dtype.size()));
    for (const char c : r.name) sum += static_cast<unsigned char>(c);
    for (const std::uint64_t n : r.shape) sum += n;
  }
  for (const auto n : d.m.names) {
    EXPECT_TRUE(in_frame(n.data(), n.size()));
    for (const char c : n) sum += static_cast<unsigned char>(c);
  }
  for (const auto& r : d.m.ranges) sum += r.begin + r.end;
  EXPECT_TRUE(in_storage(d.m.references.data(), d.m.references.size_bytes()));
  EXPECT_TRUE(in_frame(d.m.body.data(), d.m.body.size()));
  for (const std::byte b : d.m.body) sum += static_cast<unsigned>(b);
  EXPECT_LT(d.m.rows.size() + d.m.names.size() + d.m.ranges.size() + d.m.references.size(), 1000u);
  return sum;
}

std::vector<frame> seeds() {
  std::vector<frame> all;
  for (const auto& m : every_message()) all.push_back(encode(m));
  all.push_back(chunk_frame(every_message()[2], some_body));
  // the same page in two segments
  all.push_back(frame(words{std::uint64_t{9} << 32 | 1,
                            9,
                            struct_pointer(0, 7, 1),
                            std::uint64_t{12} << 32 | 5,
                            0,
                            0,
                            0,
                            0,
                            0,
                            0,
                            far_pointer(1, 0, false),
                            struct_pointer(0, 3, 1),
                            1,
                            2,
                            3,
                            list_pointer(0, of_pointer, 2),
                            list_pointer(1, of_byte, 2),
                            list_pointer(1, of_byte, 3),
                            'a',
                            'b'}));
  return all;
}

TEST(Mutations, Every_bit_of_the_first_200_bytes) {
  std::uint64_t sum = 0;
  for (frame f : seeds())
    for (std::size_t bit = 0; bit < std::min<std::size_t>(f.size(), 200) * 8; ++bit) {
      f.bytes()[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      sum += check_views(decoded(f));
      f.bytes()[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    }
  EXPECT_NE(sum, 0u);
}

TEST(Mutations, Every_byte_with_values_that_matter) {
  std::uint64_t sum = 0;
  for (frame f : seeds())
    for (std::size_t i = 0; i < f.size(); ++i)
      for (const unsigned value : {0x00u, 0x01u, 0x7fu, 0x80u, 0xffu}) {
        const std::byte was = std::exchange(f.bytes()[i], static_cast<std::byte>(value));
        sum += check_views(decoded(f));
        f.bytes()[i] = was;
      }
  EXPECT_NE(sum, 0u);
}

TEST(Mutations, Twenty_thousand_random_changes) {
  const auto all = seeds();
  generator random(20);
  std::uint64_t sum = 0;
  for (int round = 0; round < 20'000; ++round) {
    frame f = all[random.below(all.size())];
    for (std::uint64_t n = 1 + random.below(6); n > 0; --n) {
      if (random.below(3) == 0) {  // a whole word, often a small number or a pointer
        const std::uint64_t word = random.below(f.size() / 8), pick = random.below(4);
        const auto any = [&] {
          switch (pick) {
            case 0: return random();
            case 1: return random.below(16);
            case 2: return f.word(random.below(f.size() / 8));
            default: return ~random.below(64);
          }
        };
        tp::store_le64(f.bytes().data() + 8 * word, any());
      } else {
        f.bytes()[random.below(f.size())] = static_cast<std::byte>(random());
      }
    }
    if (random.below(8) == 0) f = frame(f.bytes().first(random.below(f.size() / 8 + 1) * 8));
    sum += check_views(decoded(f));
    ASSERT_FALSE(testing::Test::HasFailure()) << "round " << round;
  }
  EXPECT_NE(sum, 0u);
}

TEST(Mutations, Random_words_behind_a_right_segment_table) {
  generator random(21);
  for (int round = 0; round < 20'000; ++round) {
    const std::size_t n = 1 + random.below(40);
    words w(n + 1);
    for (auto& x : w)
      x = random.below(2) == 0 ? random()
                               : struct_pointer(static_cast<std::int32_t>(random.below(8)) - 4,
                                                static_cast<std::uint16_t>(random.below(9)),
                                                static_cast<std::uint16_t>(random.below(4)));
    w[0] = segment_table(static_cast<std::uint32_t>(n));
    if (random.below(2) == 0 && n >= 9) w[1] = struct_pointer(0, 7, 1), w[2] = random.below(16) << 32;
    check_views(decoded(frame(w)));
    ASSERT_FALSE(testing::Test::HasFailure()) << "round " << round;
  }
}

}  // namespace mutations_test
