// An integrity policy that does not say whether it checks each chunk.
// EXPECT: tensorpull: an integrity policy says whether each chunk is checked (requirement 3)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include <tensorpull/tensorpull.hpp>

struct mlp {
  float w[4][3], b[4];
};
BOOST_HANA_ADAPT_STRUCT(mlp, w, b);

using namespace tensorpull;

struct mine {
  using is_integrity_policy = void;
  using hash_type = xxhash_digest;
  static constexpr bool whole = true;
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, mine>::model_type model;
