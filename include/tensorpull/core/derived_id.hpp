// IDs that follow from others, for what is published beside a model: who knows the model's reference needs no second
// one.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/ids.hpp>
#include <tensorpull/core/sha256.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tensorpull {

/// The ID of something beside the model `whole`, which has a version: `what`, of at most 16 characters, and which of
/// them. It is as secret as the ID of `whole`: the first half of a SHA-256 of it.
constexpr ref_id derived_id(std::string_view what, const reference& whole, std::uint64_t which) noexcept {
  std::array<std::byte, 48> text{};  // zeros behind `what`, so that no other hash of an ID is the same
  for (std::size_t i = 0; i < std::min<std::size_t>(what.size(), 16); ++i) text[i] = static_cast<std::byte>(what[i]);
  store_le64(&text[16], whole.id.high);
  store_le64(&text[24], whole.id.low);
  store_le64(&text[32], whole.version);
  store_le64(&text[40], which);
  sha256_hash hash;
  hash.update(text);
  const sha256_value all = hash.value();
  std::array<std::byte, 16> half{};
  std::copy_n(all.begin(), 16, half.begin());
  const ref_id made{load_le64(&half[0]), load_le64(&half[8])};
  return made ? made : ref_id{1, 1};
}

}  // namespace tensorpull
