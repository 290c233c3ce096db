// A hash that does not say what it computes.
// EXPECT: tensorpull: an integrity policy's chunk_hash_type is a hash (requirement 5)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct nameless {
  void update(std::span<const std::byte> bytes) noexcept { inner.update(bytes); }
  std::uint64_t digest() const noexcept { return inner.digest(); }
  xxhash_digest inner;
};
struct mine : chunk_and_image_digest {
  using chunk_hash_type = nameless;
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, mine>::model_type model;
