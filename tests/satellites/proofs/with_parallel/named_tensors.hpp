// A model of which some tensors are pulled by name.
#pragma once

#include "../proved_model.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace test::proved {

using names_list = std::vector<std::string_view>;

/// Small tensors around long ones, an empty one and a scalar: 34 groups of 64 KiB.
inline const model& whole() {
  static const model one = [] {
    model m;
    m.add("empty", dtype::f32, {0, 7}).add("scalar", dtype::f64, {}).add("long", dtype::f32, {4, 100'000});
    for (int i = 0; i < 40; ++i) m.add("small " + std::to_string(10 + i), dtype::f16, {100, 7});
    m.add("other", dtype::u8, {500'000}).add("tail", dtype::u8, {3});
    m.ready();
    return std::move(m.fill(1));
  }();
  return one;
}
/// The same tensors, with other bytes.
inline model blank_subset(const model& of, const names_list& names) {
  model m;
  for (const tp::tensor_entry& t : of.schema().entries())
    if (std::find(names.begin(), names.end(), t.name) != names.end())
      m.add(std::string(t.name), t.type, {t.extents().begin(), t.extents().end()});
  m.ready();
  return m;
}
inline bool has_right_bytes(const model& mine, const model& of) {
  for (std::size_t i = 0; i < mine.size(); ++i)
    if (mine.bytes_of(mine.name(i)) != of.bytes_of(mine.name(i))) return false;
  return mine.guards_intact();
}
inline std::uint64_t part_bytes(const model& of, std::uint64_t most_parts = 512) {
  std::uint64_t part = group;
  while ((of.schema().image_bytes - 1) / part >= most_parts) part *= 2;
  return part;
}
/// The most that may be fetched: the parts with the header, of each tensor two parts more than it has, and the last
/// byte, which an owner serves before it takes a confirmation.
inline std::uint64_t most_bytes(const model& of, const model& mine, std::uint64_t most_parts = 512) {
  const std::uint64_t part = part_bytes(of, most_parts);
  return (of.schema().header_bytes + part - 1) / part * part + mine.schema().data_bytes() + 2 * part * mine.size() + 1;
}

}  // namespace test::proved
