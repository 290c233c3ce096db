// A chunking policy that cuts nothing.
// EXPECT: tensorpull: a chunking policy gives each chunk's length (requirement 4)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : fixed_bytes<64> {
  void next() = delete;
};
pipeline<raw_tensors<mlp>, mine, loopback>::model_type model;
