// One block: what it is made of comes back bit for bit, and nothing else is taken.
#include "support/models.hpp"

#include <tensorpull/satellites/differences/deflate/deflate.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

namespace block_test {

using namespace test;
using bytes = byte_vector;

constexpr dtype every_dtype(std::size_t i) { return static_cast<dtype>(i); }

bytes random_bytes(generator& g, std::size_t n) {
  bytes made(n);
  g.fill(made);
  return made;
}
/// A few elements, or all of them by a little, or anything.
bytes changed(generator& g, const bytes& old, std::size_t width) {
  bytes now = old;
  switch (g.below(5)) {
    case 0: return now;
    case 1:
      for (std::size_t at = 0; at < now.size(); at += width * static_cast<std::size_t>(1 + g.below(200)))
        for (std::size_t k = static_cast<std::size_t>(g.below(width)); k < width; ++k)
          now[at + k] = static_cast<std::byte>(g.below(256));
      return now;
    case 2:
      for (std::size_t i = 0; i < now.size(); i += width) now[i] ^= static_cast<std::byte>(g.below(8));
      return now;
    case 3:
      for (std::uint64_t k = g.below(5); k > 0 && !now.empty(); --k)
        now[static_cast<std::size_t>(g.below(now.size()))] = static_cast<std::byte>(g.below(256));
      return now;
    default: return random_bytes(g, now.size());
  }
}

template <class Coder>
bytes coded(Coder& coder, dtype type, const bytes& old, const bytes& now) {
  bytes out(tp::coded_block_bound(now.size()) + 16, std::byte{0xa5}), scratch(now.size());
  const std::size_t n = tp::encode_block(coder, type, old, now, std::span(out).first(out.size() - 16), scratch);
  EXPECT_LE(n, tp::coded_block_bound(now.size()));
  for (std::size_t i = out.size() - 16; i < out.size(); ++i) EXPECT_EQ(out[i], std::byte{0xa5});
  out.resize(n);
  return out;
}
template <class Coder>
tp::result<void> apply(Coder& coder, dtype type, bytes& inout, const bytes& from) {
  bytes scratch(inout.size());
  return tp::apply_block(coder, type, inout, from, scratch);
}

template <class Coder>
class Block : public testing::Test {
 public:
  Coder coder{};
};
using coders = testing::Types<tp::no_coder, tp::deflate_coder>;
TYPED_TEST_SUITE(Block, coders);

TYPED_TEST(Block, Gives_every_bit_back_whatever_the_dtype_and_the_length) {
  generator g(7);
  for (std::size_t kind = 0; kind < tp::dtype_count; ++kind) {
    const dtype type = every_dtype(kind);
    const std::size_t width = tp::detail::difference_element_of(type).width;
    for (const std::size_t elements : {0u, 1u, 2u, 15u, 16u, 17u, 63u, 64u, 65u, 1000u, 5000u})
      for (int again = 0; again < 6; ++again) {
        const bytes old = random_bytes(g, elements * width), now = changed(g, old, width);
        bytes is = old;
        ASSERT_TRUE(apply(this->coder, type, is, coded(this->coder, type, old, now)));
        ASSERT_TRUE(is == now) << tp::to_string(type) << ", " << elements << " elements";
      }
  }
}

TYPED_TEST(Block, Nothing_that_is_none_is_taken_and_what_it_was_for_stays) {
  generator g(8);
  for (int seed = 0; seed < 400; ++seed) {
    const dtype type = every_dtype(static_cast<std::size_t>(g.below(tp::dtype_count)));
    const std::size_t width = tp::detail::difference_element_of(type).width;
    const bytes old = random_bytes(g, width * (20 + static_cast<std::size_t>(g.below(3000)))),
                now = changed(g, old, width);
    const bytes right = coded(this->coder, type, old, now);
    bytes wrong = right;
    const std::uint64_t how = g.below(5);
    switch (how) {
      case 0: wrong.resize(static_cast<std::size_t>(g.below(wrong.size()))); break;
      case 1: wrong.push_back(std::byte{}); break;
      case 2: wrong[right == bytes(width) ? 0 : 4] = static_cast<std::byte>(4 + g.below(252)); break;
      case 3: wrong = random_bytes(g, static_cast<std::size_t>(g.below(2 * old.size()))); break;
      default: wrong[static_cast<std::size_t>(g.below(wrong.size()))] ^= static_cast<std::byte>(1 + g.below(255));
    }
    bytes is = old;
    const auto took = apply(this->coder, type, is, wrong);  // a changed byte may be another block that is one
    EXPECT_TRUE(how > 2 || !took) << how << ": too short, too long, or of an unknown kind";
    if (!took) {
      EXPECT_TRUE(took.error() == errc::bad_frame || took.error() == errc::digest_mismatch);
      EXPECT_TRUE(is == old);
    }
  }
}

TYPED_TEST(Block, Of_no_change_is_a_zero_for_each_plane_and_no_fewer_and_no_more) {
  generator g(10);
  for (std::size_t kind = 0; kind < tp::dtype_count; ++kind) {
    const dtype type = every_dtype(kind);
    const std::size_t width = tp::detail::difference_element_of(type).width;
    const bytes old = random_bytes(g, 200 * width);
    EXPECT_TRUE(coded(this->coder, type, old, old) == bytes(width));
    for (std::size_t zeros = 0; zeros < 2 * width + 2; ++zeros) {
      bytes is = old;
      EXPECT_EQ(apply(this->coder, type, is, bytes(zeros)).has_value(), zeros == width);
      EXPECT_TRUE(is == old);
    }
  }
}

/// `share` of BF16 weights change by one in the last bit, as in a step of reinforcement learning.
bytes stepped(generator& g, const bytes& old, double share) {
  bytes now = old;
  for (std::size_t i = 0; i < now.size(); i += 2)
    if (static_cast<double>(g.below(1'000'000)) < share * 1e6) {
      const auto bits = static_cast<std::uint16_t>(tp::load_le16(&now[i]) + (g.below(2) == 0 ? 1 : 0xffff));
      tp::detail::store_element(&now[i], bits);
    }
  return now;
}

TEST(BlockSparse, Few_changed_elements_take_less_than_ten_bits_each_and_need_no_coder) {
  generator g(11);
  tp::no_coder none;
  tp::deflate_coder deflate;
  for (const auto& [share, most] : {std::pair{0.002, 0.0018}, {0.01, 0.0070}, {0.05, 0.0250}, {0.12, 0.0500}}) {
    std::size_t all = 0;
    for (int block = 0; block < 16; ++block) {
      const bytes old = random_bytes(g, tp::difference_block_bytes), now = stepped(g, old, share);
      const bytes made = coded(none, dtype::bf16, old, now);
      EXPECT_TRUE(made == coded(deflate, dtype::bf16, old, now));
      all += made.size() + 4;
    }
    EXPECT_LT(static_cast<double>(all), most * 16 * tp::difference_block_bytes) << share;
  }
}

/// What stands in front of a block of these old elements.
bytes check_of(const_byte_span old) {
  bytes made(4);
  tp::detail::store_element(made.data(), tp::detail::element_check(old));
  return made;
}

TYPED_TEST(Block, Of_other_elements_is_refused_before_one_changes) {
  generator g(12);
  for (int seed = 0; seed < 200; ++seed) {
    const dtype type = every_dtype(static_cast<std::size_t>(g.below(tp::dtype_count)));
    const std::size_t width = tp::detail::difference_element_of(type).width;
    const bytes old = random_bytes(g, width * (20 + static_cast<std::size_t>(g.below(3000)))),
                now = changed(g, old, width);
    const bytes made = coded(this->coder, type, old, now);
    bytes is = old;
    if (old == now) continue;
    std::size_t at = 0;
    while (old[at] == now[at]) ++at;
    is[at] ^= static_cast<std::byte>(1 + g.below(255));
    const bytes before = is;
    EXPECT_EQ(code_of(apply(this->coder, type, is, made)), errc::digest_mismatch);
    EXPECT_TRUE(is == before);
  }
}

/// A block of the sparse form, of 16-bit zeros, whose bits are given, first bit first, as text.
bytes sparse_block(unsigned k_gap, unsigned k_number, std::uint16_t count, std::string_view bits) {
  bytes made = check_of(bytes(2 * count));
  for (const unsigned b : std::initializer_list<unsigned>{3, k_gap, k_number, count & 0xffu, unsigned{count} >> 8u})
    made.push_back(static_cast<std::byte>(b));
  std::size_t n = 0;
  for (const char bit : bits) {
    if (bit == ' ') continue;
    if (n % 8 == 0) made.emplace_back();
    if (bit == '1') made.back() |= static_cast<std::byte>(1U << (n % 8));
    ++n;
  }
  return made;
}

TEST(BlockSparse, Codes_that_lie_are_refused_and_change_nothing) {
  tp::no_coder none;
  const std::string ones32(32, '1'), zeros20(20, '0'), zeros32(32, '0');
  const auto applied = [&](std::size_t elements, const bytes& block) {
    bytes inout(2 * elements);
    const auto took = apply(none, dtype::u16, inout, block);
    EXPECT_TRUE(took || took.error() == errc::bad_frame);
    EXPECT_TRUE(took || inout == bytes(2 * elements));
    return took ? inout : bytes();
  };
  // two gaps in one bit of remainder each: 3 (quotient 1), 0; two numbers: 0 (a step of -1), 1 (a step of 1)
  const std::string_view right = "011 1 10 01";
  const bytes made = applied(16, sparse_block(1, 0, 2, right));
  ASSERT_FALSE(made.empty());
  bytes expected(32);
  tp::detail::store_element(&expected[6], std::uint16_t{0xffff});
  tp::detail::store_element(&expected[8], std::uint16_t{1});
  EXPECT_TRUE(made == expected);
  EXPECT_TRUE(applied(15, sparse_block(1, 0, 2, right)).empty()) << "more than an eighth of the elements";
  EXPECT_TRUE(applied(16, sparse_block(1, 0, 0, "")).empty()) << "none";
  EXPECT_TRUE(applied(16, sparse_block(1, 0, 1, right)).empty()) << "bits are left";
  EXPECT_TRUE(applied(24, sparse_block(1, 0, 3, right)).empty()) << "one is missing";
  EXPECT_TRUE(applied(16, sparse_block(1, 0, 2, "011 1 10 01 00000000")).empty()) << "a byte is left";
  EXPECT_TRUE(applied(16, sparse_block(1, 0, 2, "011 1 10 010000001")).empty()) << "the filling is not zeros";
  EXPECT_TRUE(applied(16, sparse_block(32, 0, 1, "1" + zeros32 + "1")).empty()) << "a gap of more than 32 bits";
  EXPECT_TRUE(applied(16, sparse_block(0, 16, 1, "1 1" + std::string(16, '0'))).empty()) << "a number of more than 16";
  EXPECT_FALSE(applied(192, sparse_block(0, 0, 1, std::string(19, '0') + "1 1")).empty());
  EXPECT_TRUE(applied(192, sparse_block(0, 0, 1, std::string(21, '0') + "1 1")).empty())
      << "a quotient above the escape";
  EXPECT_FALSE(applied(16, sparse_block(4, 0, 1, "11111 1")).empty()) << "the last element";
  EXPECT_TRUE(applied(16, sparse_block(4, 0, 1, "010000 1")).empty()) << "one past the last";
  EXPECT_TRUE(applied(16, sparse_block(4, 0, 2, "11111 1 10000 1")).empty()) << "the second past the last";
  EXPECT_TRUE(applied(16, sparse_block(0, 0, 1, zeros20 + "1" + ones32 + "1")).empty()) << "a gap of 2^32 - 1";
  EXPECT_TRUE(applied(16, sparse_block(0, 0, 1, zeros20 + "0" + zeros32)).empty()) << "a quotient without an end";
  EXPECT_TRUE(applied(16, sparse_block(0, 0, 1, "1" + zeros20 + "1" + std::string(16, '1'))).empty())
      << "a step of 0, which is no change";
  EXPECT_FALSE(applied(16, sparse_block(0, 0, 1, "1" + zeros20 + "1" + "0" + std::string(15, '1'))).empty());
  EXPECT_TRUE(applied(16, sparse_block(0, 15, 1, "1 001" + std::string(15, '0'))).empty()) << "above 16 bits";
  EXPECT_TRUE(applied(16, sparse_block(1, 0, 2, "")).empty());
  for (std::size_t n = 0; n < 9; ++n) {
    bytes cut = sparse_block(1, 0, 2, right);
    cut.resize(n);
    EXPECT_TRUE(applied(16, cut).empty()) << n;
  }
  bytes wide(16 * 8);
  const bytes above = sparse_block(0, 63, 4, "1 001" + std::string(63, '0'));  // 4: the check is of 8 zeros
  bytes one = above;
  tp::detail::store_element(&one[7], std::uint16_t{1});
  EXPECT_EQ(code_of(apply(none, dtype::u64, wide, one)), errc::bad_frame) << "above 64 bits";
}

/// The sparse form once more, bit by bit, as it is described: the elements afterwards, of zeros; nothing: it is none.
class described_sparse_form {
 public:
  static std::optional<std::vector<std::uint64_t>> read(std::size_t n, unsigned width, unsigned k_gap,
                                                        unsigned k_number, std::size_t count, const bytes& codes) {
    const unsigned all = 8 * width;
    const std::uint64_t most = ~std::uint64_t{0} >> (64 - all);
    if (k_gap >= 32 || k_number >= all || count == 0 || count > n / 8) return {};
    described_sparse_form form(codes);
    std::vector<std::uint64_t> elements(n);
    std::uint64_t next = 0;  // no position is before it, so none is twice, or runs backwards
    for (std::size_t i = 0; i < count; ++i) {
      const auto gap = form.code(k_gap, 32), number = form.code(k_number, all);
      if (!gap || !number || *gap >= n - next || *number >= most) return {};
      const std::uint64_t zigzag = *number + 1;
      elements[static_cast<std::size_t>(next + *gap)] = (zigzag % 2 == 0 ? zigzag / 2 : ~(zigzag / 2)) & most;
      next += *gap + 1;
    }
    if (form.at_ > 8 * codes.size() || 8 * codes.size() - form.at_ >= 8) return {};
    while (form.at_ < 8 * codes.size())
      if (form.bit()) return {};
    return elements;
  }

 private:
  explicit described_sparse_form(const bytes& codes) : codes_(codes) {}
  bool bit() {
    const std::size_t at = at_++;
    return at / 8 < codes_.size() && (static_cast<unsigned>(codes_[at / 8]) >> at % 8 & 1) != 0;
  }
  std::optional<std::uint64_t> code(unsigned k, unsigned all) {
    std::uint64_t zeros = 0, low = 0;
    while (zeros < 21 && !bit()) ++zeros;
    if (zeros == 21) return {};
    const unsigned n = zeros == 20 ? all : k;
    for (unsigned i = 0; i < n; ++i) low |= std::uint64_t{bit()} << i;
    if (zeros == 20) return low;
    if (k > 0 && zeros >> (64 - k) != 0) return {};
    return zeros << k | low;
  }

  const bytes& codes_;
  std::size_t at_ = 0;
};

TEST(BlockSparse, Whatever_bits_arrive_are_taken_exactly_if_they_are_what_is_described) {
  tp::no_coder none;
  generator g(27);
  std::size_t taken = 0, refused = 0;
  for (int seed = 0; seed < 60'000; ++seed) {
    const auto below = [&](std::uint64_t n) { return static_cast<unsigned>(g.below(n)); };
    const unsigned width = 1U << below(4), all = 8 * width;
    const std::size_t n = 8 + below(600);
    const unsigned k_gap = below(20) == 0 ? below(40) : below(8), k_number = below(20) == 0 ? below(70) : below(all);
    std::size_t count = 1 + below(n / 8);
    std::string text;
    const auto put = [&](std::uint64_t number, unsigned k, unsigned long_bits) {
      const std::uint64_t quotient = k < 64 ? number >> k : 0;
      const bool whole = quotient >= 20;
      text += std::string(static_cast<std::size_t>(whole ? 20 : quotient), '0') + '1';
      for (unsigned i = 0; i < (whole ? long_bits : k); ++i) text += (i < 64 && (number >> i & 1) != 0) ? '1' : '0';
    };
    std::uint64_t next = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t room = n - next, left = count - i;
      // mostly there is room for those that follow; or the position is the last, the one past it, or far beyond
      const std::uint64_t gaps[]{g.below(room / left + 1), g.below(room / left + 1), room - 1, room,
                                 g.below(1ULL << 33)};
      const std::uint64_t gap = gaps[below(60) == 0 ? below(5) : 0];
      const std::uint64_t number = g.below(~0ULL) >> (64 - 1 - below(all));
      put(gap, k_gap, 32);
      if (below(200) == 0)  // a quotient that no number has
        text += std::string(below(22), '0') + std::string(1 + k_number, '1');
      else put(below(200) == 0 ? ~std::uint64_t{0} >> (64 - all) : number, k_number, all);
      next = std::min<std::uint64_t>(n - 1, next + gap + 1);
    }
    bytes codes;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (i % 8 == 0) codes.emplace_back();
      if (text[i] == '1') codes.back() |= static_cast<std::byte>(1U << i % 8);
    }
    switch (below(8)) {  // a lie
      case 0: count = count - 1 + 2 * below(2); break;
      case 1: count = below(0x10000); break;
      case 2: codes.resize(below(codes.size() + 1)); break;
      case 3: codes.resize(codes.size() + 1 + below(9)); break;
      case 4: codes[below(codes.size())] ^= static_cast<std::byte>(1U << below(8)); break;
      default: break;
    }
    const auto expected = described_sparse_form::read(n, width, k_gap, k_number, count, codes);
    bytes block = check_of(bytes(width * count)), inout(n * width);
    for (const std::size_t b : std::initializer_list<std::size_t>{3, k_gap, k_number, count & 0xff, count >> 8})
      block.push_back(static_cast<std::byte>(b));
    block.insert(block.end(), codes.begin(), codes.end());
    const dtype type = std::array{dtype::u8, dtype::u16, dtype::u32,
                                  dtype::u64}[static_cast<std::size_t>(std::countr_zero(width))];
    const auto took = apply(none, type, inout, block);
    ASSERT_EQ(took.has_value(), expected.has_value()) << seed;
    ++(took ? taken : refused);
    if (!took) {
      ASSERT_EQ(code_of(took), errc::bad_frame) << seed;
    }
    for (std::size_t i = 0; i < n; ++i)
      for (unsigned k = 0; k < width; ++k)
        ASSERT_EQ(static_cast<std::uint64_t>(inout[i * width + k]), expected ? (*expected)[i] >> 8 * k & 0xff : 0)
            << seed << ' ' << i;
  }
  EXPECT_GT(taken, 10'000u);
  EXPECT_GT(refused, 10'000u);
}

TEST(BlockSparse, The_greatest_steps_come_back) {
  tp::no_coder none;
  for (const dtype type : {dtype::u8, dtype::u16, dtype::f32, dtype::f64, dtype::i64, dtype::bf16}) {
    const std::size_t width = tp::bits(type) / 8;
    for (const std::size_t at : {0u, 1u, 7u, 8u, 31u, 32u, 63u, 64u, 200u, 255u})
      for (const std::uint64_t to : {~std::uint64_t{0}, std::uint64_t{1} << 63U, std::uint64_t{0x8080808080808080}}) {
        const bytes old(256 * width);
        bytes now = old;
        for (std::size_t k = 0; k < width; ++k)
          now[at * width + k] = static_cast<std::byte>(to >> (8 * (8 - width + k)) & 0xff);
        const bytes made = coded(none, type, old, now);
        EXPECT_EQ(made[4], std::byte{3});
        EXPECT_LE(made.size(), 9 + 1 + 4 + width + 3) << "no longer than what it is of";
        bytes is = old;
        ASSERT_TRUE(apply(none, type, is, made));
        EXPECT_TRUE(is == now);
      }
  }
}

/// The packed plane is all there is, of as many bytes as it claims, and the elements are `of` zeros.
bytes packed_block(const_byte_span packed, std::size_t of) {
  bytes block = check_of(bytes(of));
  block.insert(block.end(), {std::byte{2}, std::byte{}, std::byte{}, std::byte{}, std::byte{}});
  tp::detail::store_element(&block[5], static_cast<std::uint32_t>(packed.size()));
  block.insert(block.end(), packed.begin(), packed.end());
  return block;
}

TEST(BlockDeflate, A_packed_plane_is_all_of_its_bytes_and_has_all_of_its_elements) {
  tp::deflate_coder coder;
  const bytes plane(100, std::byte{2});
  bytes packed(100);
  const std::size_t n = coder.pack(plane, packed);
  ASSERT_GT(n, 0u);
  packed.resize(n);
  const auto taken_as = [&](std::size_t elements, const bytes& as) {
    bytes inout(elements);
    const bool took = apply(coder, dtype::u8, inout, packed_block(as, elements)).has_value();
    EXPECT_TRUE(took || inout == bytes(elements));
    return took;
  };
  EXPECT_TRUE(taken_as(100, packed));
  EXPECT_FALSE(taken_as(99, packed)) << "it goes on";
  EXPECT_FALSE(taken_as(101, packed)) << "it ends before";
  bytes other = packed;
  other.push_back(std::byte{});
  EXPECT_FALSE(taken_as(100, other)) << "something lies behind it";
  other = packed;
  other.pop_back();
  EXPECT_FALSE(taken_as(100, other)) << "it is cut off";
  EXPECT_FALSE(taken_as(100, {}));
  EXPECT_TRUE(taken_as(100, packed)) << "what was refused leaves nothing behind";
  bytes claims = packed_block(packed, 100), inout(100);
  tp::detail::store_element(&claims[5], ~std::uint32_t{0});
  EXPECT_EQ(code_of(apply(coder, dtype::u8, inout, claims)), errc::bad_frame);
}

TEST(BlockOrder, Numbers_that_are_close_differ_by_little_on_both_sides_of_zero) {
  using tp::detail::in_order, tp::detail::zigzag, tp::detail::from_zigzag, tp::detail::out_of_order;
  const auto at = [](float v) { return in_order(std::bit_cast<std::uint32_t>(v)); };
  EXPECT_EQ(at(0.0f) - at(-0.0f), 1u);
  EXPECT_LT(at(-1.0f), at(-0.5f));
  EXPECT_LT(at(-0.5f), at(0.5f));
  EXPECT_EQ(at(std::nextafter(2.0f, 3.0f)) - at(2.0f), 1u);
  EXPECT_EQ(at(-2.0f) - at(std::nextafter(-2.0f, -3.0f)), 1u);
  for (std::uint32_t v = 0; v < 70'000; ++v) {
    const auto small = static_cast<std::uint16_t>(v);
    ASSERT_EQ(out_of_order(in_order(small)), small);
    ASSERT_EQ(from_zigzag(zigzag(small)), small);
  }
  EXPECT_EQ(zigzag(std::uint32_t{1}), 2u);
  EXPECT_EQ(zigzag(~std::uint32_t{0}), 1u);
}

TEST(BlockLength, A_small_step_takes_a_part_of_the_bytes_and_noise_no_more_than_it_has) {
  generator g(9);
  tp::deflate_coder coder;
  std::vector<float> old(16'384), now(old.size());
  for (std::size_t i = 0; i < old.size(); ++i) {
    old[i] = static_cast<float>(g.below(1'000'000)) * 1e-7f - 0.05f;
    now[i] = old[i] + static_cast<float>(g.below(1000)) * 2e-8f - 1e-5f;
  }
  const auto of = [](const std::vector<float>& v) {
    bytes b(v.size() * 4);
    std::memcpy(b.data(), v.data(), b.size());
    return b;
  };
  EXPECT_LT(coded(coder, dtype::f32, of(old), of(now)).size(), old.size() * 4 * 6 / 10);
  EXPECT_EQ(coded(coder, dtype::f32, of(old), of(old)).size(), 4u) << "a byte for each plane";
  const bytes noise = random_bytes(g, 65'536), other = random_bytes(g, 65'536);
  EXPECT_EQ(coded(coder, dtype::u32, noise, other).size(), 65'544u);
}
TEST(BlockLength, A_column_that_changes_takes_the_bytes_of_a_column_wherever_it_is) {
  generator g(10);
  tp::deflate_coder coder;
  const bytes old = random_bytes(g, 65'536);
  for (const dtype type : {dtype::u16, dtype::u32, dtype::u64})
    for (const std::size_t columns : {4U, 5U, 7U, 8U, 16U, 17U, 64U, 100U})
      for (const std::size_t column : {0U, 1U, 3U}) {
        const std::size_t width = tp::bits(type) / 8;
        bytes now = old;
        std::size_t moved = 0;
        for (std::size_t i = column; i < now.size() / width; i += columns, moved += width)
          for (std::size_t k = 0; k < width; ++k) now[i * width + k] = static_cast<std::byte>(g.below(256));
        EXPECT_LT(coded(coder, type, old, now).size(), 2 * moved + 1000) << width << ' ' << columns << ' ' << column;
      }
}

}  // namespace block_test
