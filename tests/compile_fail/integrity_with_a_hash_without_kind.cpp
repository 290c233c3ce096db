// A hash that does not say what it computes.
// EXPECT: tensorpull: an integrity policy's chunk_hash_type is a hash (requirement 5)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include <tensorpull/tensorpull.hpp>

struct mlp {
  float w[4][3], b[4];
};
BOOST_HANA_ADAPT_STRUCT(mlp, w, b);

using namespace tensorpull;

struct nameless {
  void update(std::span<const std::byte> bytes) noexcept { inner.update(bytes); }
  std::uint64_t digest() const noexcept { return inner.digest(); }
  xxhash_digest inner;
};
struct mine {
  using is_integrity_policy = void;
  static constexpr bool whole = true, per_chunk = true;
  using hash_type = xxhash_digest;
  using chunk_hash_type = nameless;
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, mine>::model_type model;
