// Integrity policies that lack something.
#include "model.hpp"

// CASE integrity_per_chunk_with_no_hash
// EXPECT: tensorpull: an integrity policy's chunk_hash_type is a hash (requirement 5)
struct none_hash : xxhash_digest {
  static constexpr digest_kind kind = digest_kind::none;
};
struct mine : chunk_and_image_digest {
  using chunk_hash_type = none_hash;
};

// CASE integrity_per_chunk_without_any_hash
// EXPECT: tensorpull: an integrity policy's chunk_hash_type is a hash (requirement 5)
struct none_hash : xxhash_digest {
  static constexpr digest_kind kind = digest_kind::none;
};
struct mine : chunk_digest {
  using hash_type = none_hash;
};

// CASE integrity_with_a_chunk_hash_that_is_none
// EXPECT: tensorpull: an integrity policy's chunk_hash_type is a hash (requirement 5)
struct mine : image_digest {
  static constexpr bool per_chunk = true;
  using chunk_hash_type = int;
};

// CASE integrity_with_a_hash_without_kind
// EXPECT: tensorpull: an integrity policy's chunk_hash_type is a hash (requirement 5)
struct nameless {
  void update(std::span<const std::byte> bytes) noexcept { inner.update(bytes); }
  std::uint64_t digest() const noexcept { return inner.digest(); }
  xxhash_digest inner;
};
struct mine : chunk_and_image_digest {
  using chunk_hash_type = nameless;
};

// CASE integrity_with_a_kind_that_is_a_number
// EXPECT: tensorpull: an integrity policy's chunk_hash_type is a hash (requirement 5)
struct seventh : xxhash_digest {
  static constexpr int kind = 7;
};
struct mine : chunk_and_image_digest {
  using chunk_hash_type = seventh;
};

// CASE integrity_without_hash
// EXPECT: tensorpull: an integrity policy has the hash of a version (requirement 4)
struct mine : unverified {
  static constexpr bool whole = true;
};

// CASE integrity_without_per_chunk
// EXPECT: tensorpull: an integrity policy says whether each chunk is checked (requirement 3)
struct mine : image_digest {
  void per_chunk() = delete;
};

// EACH ENDS WITH
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, mine>::model_type model;
