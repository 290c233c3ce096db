// A pull that is proved, from several sources at once, driven in hand.
#pragma once

#include "satellites/parallel/driven_lines.hpp"

#include <tensorpull/satellites/parallel/checked_transfer.hpp>
#include <tensorpull/satellites/proofs/proved.hpp>

#include <optional>
#include <vector>

namespace test::driven {

inline tp::proof proof_of(const model& m, unsigned level) {
  const tp::source_view image = m.source();
  std::vector<tp::blake3_value> values;
  const auto root = tp::proof_tree::make(image)->root();
  const std::uint64_t groups = tp::groups_of(image.schema->image_bytes, level);
  for (std::uint64_t i = 0; i < groups && groups > 1; ++i) {
    tp::detail::group_hash<> hash((i << level) / 1024);
    const std::uint64_t at = i << level;
    EXPECT_TRUE(tp::hash_range(hash, image, at, std::min(std::uint64_t{1} << level, image.schema->image_bytes - at)));
    values.push_back(hash.chaining_value());
  }
  return *tp::proof::make(root, image.schema->image_bytes, level, values);
}
inline std::uint64_t offset_of(const byte_vector& f) {
  return tp::detail::payload_prefix::read(std::span<const std::byte, 80>(f.data(), 80))->offset;
}

/// `lies`: of each source; nothing: it is honest.
template <class Consumer, class Chunking = tp::fixed_bytes<65'536>, class Plan = tp::every_source>
struct pulled {
  std::optional<tp::result<tp::receipt>> done;
  std::uint8_t wrong = 0;
  std::uint64_t turns = 0;
  std::vector<std::uint64_t> carried;  // bytes from each source

  pulled(Consumer& to, const model& published, std::vector<tampering> lies, const lines_of& how, std::uint64_t seed)
      : carried(lies.size()) {
    generator r(seed);
    const tp::pull_request request{.ref = id, .version = version_of(published), .recipient = {9}};
    tp::checked_transfer<Consumer, Chunking, tp::default_limits, Plan> t(to, request, {}, 1);
    turns = drive(t, published, std::move(lies), how, r, &carried);
    if (t.ended()) done = t.outcome();
    wrong = t.wrong();
  }
};

}  // namespace test::driven
