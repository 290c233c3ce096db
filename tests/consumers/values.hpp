// Tensors as numbers: to fill models with values that average well, and to compute the same average in double
// precision.
#pragma once

#include "../support/models.hpp"

#include <tensorpull/consumers/average/detail/elements.hpp>

#include <algorithm>
#include <array>
#include <cmath>

namespace test {

/// Every dtype that can be averaged, odd sizes, a scalar, empty tensors; nothing aligned if `shift` is odd.
inline model numeric_model(std::size_t shift = 0, std::uint64_t extent = 37) {
  model m;
  for (const dtype t : {dtype::u8, dtype::i8, dtype::f8_e5m2, dtype::f8_e4m3, dtype::f8_e4m3fnuz, dtype::f8_e5m2fnuz,
                        dtype::i16, dtype::u16, dtype::f16, dtype::bf16, dtype::i32, dtype::u32, dtype::f32, dtype::c64,
                        dtype::f64, dtype::i64, dtype::u64})
    m.add("tensor." + std::string(to_string(t)), t, {extent}, shift);
  m.add("scalar", dtype::f32, {}, shift)
      .add("empty", dtype::f32, {0, 4}, shift)
      .add("matrix", dtype::f16, {3, 5}, shift);
  return std::move(m.ready());
}

/// f(dtype, element's address, element's byte in the data section) for each element.
template <class F>
void for_each_element(model& m, F f) {
  const auto d = m.destination();
  for (std::size_t i = 0; i < d.schema->tensor_count; ++i) {
    const tp::tensor_entry& t = d.schema->tensors[i];
    const std::uint64_t size = tp::bits(t.type) / 8;
    for (std::uint64_t at = 0; at < t.size_bytes(); at += size) f(t.type, d.address(i) + at, t.begin + at);
  }
}

/// Finite values of moderate size in every element.
inline void fill_values(model& m, std::uint64_t seed) {
  generator g(seed);
  const auto uniform = [&g] { return static_cast<double>(static_cast<std::int64_t>(g())) / 0x1p63; };
  for_each_element(m, [&](dtype type, std::byte* to, std::uint64_t) {
    tp::detail::with_element(
        type,
        [&]<class E>(E) {
          for (std::size_t part = 0; part < E::parts; ++part) {
            const bool is_integer = type == dtype::i64 || type == dtype::u64 || type == dtype::i32 ||
                                    type == dtype::u32 || type == dtype::i16 || type == dtype::u16 ||
                                    type == dtype::i8 || type == dtype::u8;
            const double largest = is_integer ? std::ldexp(1.0, E::bytes >= 4 ? 30 : 8 * static_cast<int>(E::bytes) - 1)
                                              : 2.0;
            E::write(to + part * E::bytes, uniform() * largest);
          }
          return true;
        },
        false);
  });
}

/// The parts of one element as doubles. It lies in a model, in the machine's byte order.
inline std::array<double, 2> read_element(dtype type, const std::byte* at) {
  std::array<double, 2> v{};
  tp::detail::with_element(
      type,
      [&]<class E>(E) {
        for (std::size_t part = 0; part < E::parts; ++part) {
          std::array<std::byte, 8> as_in_image{};
          std::copy_n(at + part * E::bytes, E::bytes, as_in_image.begin());
          if (!tp::little_endian_machine) std::reverse(as_in_image.begin(), as_in_image.begin() + E::bytes);
          v[part] = static_cast<double>(E::read(as_in_image.data()));
        }
        return true;
      },
      false);
  return v;
}

/// The largest error that rounding to a dtype may cause, for values around `size`; sums in float32 included.
inline double tolerance(dtype type, double size) {
  switch (type) {
    case dtype::f64: return size * 1e-14;
    case dtype::f32:
    case dtype::c64: return size * 1e-6;
    case dtype::f16: return size * 0x1p-11 * 1.01 + 0x1p-25;
    case dtype::bf16: return size * 0x1p-8 * 1.01;
    case dtype::f8_e4m3:
    case dtype::f8_e4m3fnuz: return size * 0x1p-4 * 1.01 + 0x1p-10;
    case dtype::f8_e5m2:
    case dtype::f8_e5m2fnuz: return size * 0x1p-3 * 1.01 + 0x1p-17;
    default: return 0.5 + 1e-6;
  }
}

/// What reached the average: a model, its weight, and how many bytes of its data section.
struct contribution {
  model* from;
  double weight;
  std::uint64_t bytes = ~std::uint64_t{0};
};

/// Compares every element with the weighted mean of what reached it, computed in double precision.
inline void expect_mean(model& result, const std::vector<contribution>& all) {
  std::vector<std::vector<std::array<double, 2>>> values(all.size());
  for (std::size_t i = 0; i < all.size(); ++i)
    for_each_element(*all[i].from,
                     [&](dtype type, std::byte* at, std::uint64_t) { values[i].push_back(read_element(type, at)); });
  std::size_t index = 0;
  for_each_element(result, [&](dtype type, std::byte* at, std::uint64_t place) {
    const auto got = read_element(type, at);
    for (std::size_t part = 0; part < 2; ++part) {
      double sum = 0, weight = 0, size = 0;
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (place + tp::bits(type) / 8 > all[i].bytes) continue;
        sum += all[i].weight * values[i][index][part];
        size = std::max(size, std::fabs(values[i][index][part]));
        weight += all[i].weight;
      }
      ASSERT_GT(weight, 0);
      ASSERT_NEAR(got[part], sum / weight, tolerance(type, size)) << to_string(type) << " at " << place;
    }
    ++index;
  });
}

}  // namespace test
