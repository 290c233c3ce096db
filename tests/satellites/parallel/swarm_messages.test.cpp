// The messages of a swarm: what is written is read again, and what no honest end writes is refused.
#include "support/random.hpp"
#include "transports/sample_models.hpp"

#include <tensorpull/satellites/parallel/swarm/detail/swarm_messages.hpp>

namespace swarm_messages_test {

using namespace test;
namespace swarm = tp::detail::swarm;
using swarm::member_state;

swarm::address_text at(std::string_view text) { return *swarm::address_text::of(text); }

/// In memory of exactly its length, so that a sanitizer sees every read behind it.
struct exact {
  explicit exact(const_byte_span bytes) : size(bytes.size()), data(new std::byte[bytes.size()]) {
    std::copy(bytes.begin(), bytes.end(), data.get());
  }
  std::size_t size;
  std::unique_ptr<std::byte[]> data;
  operator const_byte_span() const { return {data.get(), size}; }
};
template <class Message>
byte_vector written(const Message& m) {
  byte_vector out(2000, std::byte{0xee});
  out.resize(swarm::encode(m, out));
  for (std::size_t room = 0; room < out.size(); ++room) {
    const exact less(byte_vector(room, std::byte{0xdd}));
    EXPECT_EQ(swarm::encode(m, {less.data.get(), room}), 0u) << "into " << room << " bytes";
    EXPECT_TRUE(std::all_of(less.data.get(), less.data.get() + room, [](std::byte b) { return b == std::byte{0xdd}; }));
  }
  byte_vector again(out.size());
  EXPECT_EQ(swarm::encode(m, again), out.size());
  EXPECT_EQ(again, out);
  return out;
}
tp::optional<swarm::list> list_of(const byte_vector& b) { return swarm::decode_list(exact(b)); }
tp::optional<swarm::join> join_of(const byte_vector& b) { return swarm::decode_join(exact(b)); }
tp::optional<swarm::parts> parts_of(const byte_vector& b) { return swarm::decode_parts(exact(b)); }

swarm::list sample(std::size_t count) {
  swarm::list l;
  l.number = 0x01020304, l.self = 0x1112131415161718;
  for (; l.count < count; ++l.count)
    l.others[l.count] = {100u + l.count, static_cast<member_state>(l.count % 2),
                         at(std::string(1u + l.count * 53u / 14, 'a'))};
  return l;
}
bool equal(const swarm::list& a, const swarm::list& b) {
  return a.number == b.number && a.self == b.self && std::ranges::equal(a.members(), b.members());
}

TEST(SwarmMessages, A_join_is_laid_out_as_it_is_said) {
  swarm::join j{0x01020304, member_state::has_all, at("a:1")};
  EXPECT_EQ(written(j), (byte_vector{std::byte{4}, std::byte{3}, std::byte{2}, std::byte{1}, std::byte{1}, std::byte{3},
                                     std::byte{'a'}, std::byte{':'}, std::byte{'1'}}));
  for (std::size_t size = 1; size <= 54; ++size) {
    j.address = at(std::string(size, 'x'));
    const auto again = join_of(written(j));
    ASSERT_TRUE(again) << size;
    EXPECT_EQ(*again, j);
  }
  byte_vector out(100);
  EXPECT_EQ(swarm::encode(swarm::join{}, out), 0u) << "without an address";
}
TEST(SwarmMessages, A_join_of_any_other_length_or_text_is_refused) {
  const byte_vector good = written(swarm::join{1, member_state::pulls, at("127.0.0.7:1")});
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(join_of(byte_vector(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)))) << size;
  for (std::size_t length = 0; length < 256; ++length)
    for (const std::size_t size : {good.size(), 6 + length}) {
      byte_vector b = good;
      b.resize(size, std::byte{'x'});
      b[5] = static_cast<std::byte>(length);
      EXPECT_EQ(bool(join_of(b)), size == 6 + length && length >= 1 && length <= 54) << length << ", " << size;
    }
  for (std::size_t value = 0; value < 256; ++value) {
    byte_vector b = good;
    b[4] = static_cast<std::byte>(value);
    EXPECT_EQ(bool(join_of(b)), value < 2) << "state " << value;
    for (const std::size_t place : {std::size_t{6}, good.size() - 1}) {
      b = good;
      b[place] = static_cast<std::byte>(value);
      EXPECT_EQ(bool(join_of(b)), value >= 0x20 && value != 0x7f) << "character " << value;
    }
  }
}

TEST(SwarmMessages, A_list_is_laid_out_as_it_is_said) {
  swarm::list l = sample(0);
  l.others[l.count++] = {0x2122232425262728, member_state::has_all, at("b:2")};
  const byte_vector b = written(l);
  ASSERT_EQ(b.size(), 13u + 64);
  EXPECT_EQ(tp::load_le32(&b[0]), l.number);
  EXPECT_EQ(tp::load_le64(&b[4]), l.self);
  EXPECT_EQ(b[12], std::byte{1});
  EXPECT_EQ(tp::load_le64(&b[13]), 0x2122232425262728u);
  EXPECT_EQ(b[21], std::byte{1});
  EXPECT_EQ(b[22], std::byte{3});
  EXPECT_EQ(std::memcmp(&b[23], "b:2", 3), 0);
  EXPECT_TRUE(std::all_of(b.begin() + 26, b.end(), [](std::byte x) { return x == std::byte{0}; }));
  for (std::size_t count = 0; count <= 15; ++count) {
    const byte_vector all = written(sample(count));
    EXPECT_EQ(all.size(), 13 + 64 * count);
    const auto again = list_of(all);
    ASSERT_TRUE(again) << count;
    EXPECT_TRUE(equal(*again, sample(count)));
    EXPECT_FALSE(again->refused());
  }
  EXPECT_EQ(swarm::list::most_bytes, written(sample(15)).size());
  const auto refusal = list_of(written(swarm::list{}));
  ASSERT_TRUE(refusal);
  EXPECT_TRUE(refusal->refused());
}
TEST(SwarmMessages, A_list_that_is_cut_or_has_another_count_is_refused) {
  for (const std::size_t count : {0u, 1u, 2u, 15u}) {
    const byte_vector good = written(sample(count));
    for (std::size_t size = 0; size < good.size() + 70; ++size) {
      byte_vector b = good;
      b.resize(size);
      EXPECT_EQ(bool(list_of(b)), size == good.size()) << size;
    }
    for (std::size_t other = 0; other < 256; ++other) {
      byte_vector b = good;
      b[12] = static_cast<std::byte>(other);
      EXPECT_EQ(bool(list_of(b)), other == count) << other;
      b.resize(13 + 64 * other, std::byte{1});
      if (other > 15) {
        EXPECT_FALSE(list_of(b)) << "more than a group has: " << other;
      }
    }
  }
}
TEST(SwarmMessages, A_list_of_more_than_a_group_is_refused_however_right_its_entries_are) {
  byte_vector b = written(sample(15));
  for (std::size_t count = 16; count < 256; ++count) {
    const byte_vector last(b.end() - 64, b.end());
    b.insert(b.end(), last.begin(), last.end());
    tp::store_le64(&b[b.size() - 64], 1000 + count);
    b[12] = static_cast<std::byte>(count);
    EXPECT_FALSE(list_of(b)) << count;
  }
}
TEST(SwarmMessages, A_list_with_a_wrong_entry_is_refused_wherever_it_is) {
  const swarm::list honest = sample(15);
  const byte_vector good = written(honest);
  for (std::size_t i = 0; i < 15; ++i) {
    const std::size_t entry = 13 + 64 * i, length = honest.others[i].address.view().size();
    const auto with = [&](std::size_t place, std::size_t value) {
      byte_vector b = good;
      b[entry + place] = static_cast<std::byte>(value);
      return bool(list_of(b));
    };
    const auto numbered = [&](std::uint64_t number) {
      byte_vector b = good;
      tp::store_le64(&b[entry], number);
      return bool(list_of(b));
    };
    EXPECT_FALSE(numbered(0));
    EXPECT_FALSE(numbered(honest.self)) << "the member itself";
    EXPECT_TRUE(numbered(77));
    for (std::size_t other = 0; other < 15; ++other) EXPECT_EQ(numbered(100 + other), other == i) << "twice";
    for (std::size_t state = 0; state < 256; ++state) EXPECT_EQ(with(8, state), state < 2);
    for (std::size_t size = 0; size < 256; ++size)
      EXPECT_EQ(with(9, size), size == length) << "a length with zeros in its text, or text behind it: " << size;
    for (std::size_t at_byte = 0; at_byte < 54; ++at_byte) {
      EXPECT_EQ(with(10 + at_byte, 0), at_byte >= length) << at_byte;
      EXPECT_EQ(with(10 + at_byte, 'z'), at_byte < length) << at_byte;
      EXPECT_FALSE(with(10 + at_byte, 0x1b)) << at_byte;
    }
  }
}
TEST(SwarmMessages, A_list_without_a_number_is_empty_and_has_no_number_of_the_member) {
  for (const std::uint32_t number : {0u, 1u})
    for (const std::uint64_t self : {0u, 1u})
      for (const std::size_t count : {0u, 1u}) {
        swarm::list l = sample(count);
        l.number = number, l.self = self;
        EXPECT_EQ(bool(list_of(written(l))), number != 0 ? self != 0 : self == 0 && count == 0);
      }
}

TEST(SwarmMessages, Parts_are_laid_out_as_they_are_said) {
  swarm::parts p{.shift = 20, .proved = {}};
  for (const std::size_t part : {0u, 9u, 511u}) p.add(part);
  p.add(512), p.add(~std::size_t{0});
  const byte_vector b = written(p);
  ASSERT_EQ(b.size(), 65u);
  EXPECT_EQ(b[0], std::byte{20});
  EXPECT_EQ(b[1], std::byte{1});
  EXPECT_EQ(b[2], std::byte{2});
  EXPECT_EQ(b[64], std::byte{0x80});
  const auto again = parts_of(b);
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, p);
  for (std::size_t part = 0; part < 600; ++part) EXPECT_EQ(again->has(part), part == 0 || part == 9 || part == 511);
  EXPECT_FALSE(again->has(~std::size_t{0}));
}
TEST(SwarmMessages, Parts_of_any_other_length_or_size_are_refused) {
  const byte_vector good = written(swarm::parts{});
  for (std::size_t size = 0; size < 100; ++size) {
    byte_vector b = good;
    b.resize(size);
    EXPECT_EQ(bool(parts_of(b)), size == 65) << size;
  }
  for (std::size_t shift = 0; shift < 256; ++shift) {
    byte_vector b = good;
    b[0] = static_cast<std::byte>(shift);
    EXPECT_EQ(bool(parts_of(b)), shift < 64) << shift;
  }
}

/// A body that is right, of one of the three.
byte_vector right_body(generator& random) {
  byte_vector out(2000);
  const std::uint64_t kind = random.below(3);
  if (kind == 0) {
    const swarm::join j{static_cast<std::uint32_t>(random()), static_cast<member_state>(random.below(2)),
                        at(std::string(1 + random.below(54), 'j'))};
    out.resize(swarm::encode(j, out));
  } else if (kind == 1) out.resize(swarm::encode(sample(random.below(16)), out));
  else {
    swarm::parts p{.shift = static_cast<std::uint8_t>(random.below(64)), .proved = {}};
    for (auto& b : p.proved) b = static_cast<std::uint8_t>(random());
    out.resize(swarm::encode(p, out));
  }
  return out;
}
// Whatever is read is written as the same bytes: nothing of another party gets by that this end would not say.
TEST(SwarmMessages, Random_bodies_are_refused_or_are_what_this_end_writes) {
  generator random(4);
  std::size_t taken = 0;
  for (int i = 0; i < 60'000; ++i) {
    byte_vector b = random() % 3 == 0 ? random.bytes(random.below(100)) : right_body(random);
    for (std::uint64_t n = random.below(3); n > 0 && !b.empty(); --n)
      b[random.below(b.size())] ^= std::byte(1u << random.below(8));
    byte_vector again(2000);
    const exact body(b);
    const auto check = [&](const auto& read) {
      if (!read) return;
      ++taken;
      again.resize(2000);
      again.resize(swarm::encode(*read, again));
      EXPECT_EQ(again, b);
    };
    check(swarm::decode_join(body));
    check(swarm::decode_list(body));
    check(swarm::decode_parts(body));
  }
  EXPECT_GT(taken, 10'000u);
}

}  // namespace swarm_messages_test
