// Models that move a little, as training moves them.
#pragma once

#include <tensorpull/image/dynamic.hpp>
#include <tensorpull/satellites/differences/narrowed_difference.hpp>

#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace test {

/// Tensors of these types, of 0 to many elements; those of 100 and more are matrices.
struct some_model {
  std::vector<std::string> names;
  std::vector<tensorpull::dtype> types;
  std::vector<std::uint64_t> counts;
  std::vector<std::vector<std::uint64_t>> shapes;
  std::vector<std::vector<std::uint64_t>> memory;

  explicit some_model(const std::vector<tensorpull::dtype>& of = {tensorpull::dtype::f32}) {
    for (const tensorpull::dtype type : of)
      for (const std::uint64_t n : {0u, 1u, 15u, 16u, 17u, 100u, 5000u}) {
        names.push_back(std::string(to_string(type)) + "." + std::to_string(n));
        types.push_back(type);
        counts.push_back(n);
        shapes.push_back(n < 100 ? std::vector{n} : std::vector{n / 10, std::uint64_t{10}});
        memory.emplace_back(n + 1);
      }
    step(1, 1);
  }
  some_model stepped(std::uint64_t seed, double width) const {
    some_model made = *this;
    made.step(seed, width);
    return made;
  }
  void step(std::uint64_t seed, double width) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal(0, width);
    for (std::size_t i = 0; i < names.size(); ++i)
      for (std::size_t k = 0; k < counts[i]; ++k) {
        std::byte* const at = reinterpret_cast<std::byte*>(memory[i].data()) + k * (tensorpull::bits(types[i]) / 8);
        const bool moves = tensorpull::detail::with_movable(types[i], false, [&](auto t) {
          std::memcpy(&t, at, sizeof t);
          t = tensorpull::moved(t, normal(random));
          std::memcpy(at, &t, sizeof t);
          return true;
        });
        if (!moves) at[0] = static_cast<std::byte>(random());
      }
  }
  std::vector<tensorpull::mutable_tensor_view> views() {
    std::vector<tensorpull::mutable_tensor_view> made;
    for (std::size_t i = 0; i < names.size(); ++i)
      made.push_back({names[i], types[i], shapes[i], reinterpret_cast<std::byte*>(memory[i].data()), {}, false});
    return made;
  }
  std::vector<tensorpull::tensor_view> constant() {
    const auto all = views();
    return {all.begin(), all.end()};
  }
  tensorpull::dynamic_image image() {
    return *tensorpull::dynamic_image::make(std::span<const tensorpull::mutable_tensor_view>(views()));
  }
  friend bool operator==(const some_model& a, const some_model& b) { return a.memory == b.memory; }
};

}  // namespace test
