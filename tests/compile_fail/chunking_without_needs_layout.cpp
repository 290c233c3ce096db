// A chunking policy that does not say whether it needs the layout.
// EXPECT: tensorpull: a chunking policy says whether it needs the image's layout (requirement 3)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : fixed_bytes<64> {
  void needs_layout() = delete;
};
pipeline<raw_tensors<mlp>, mine, loopback>::model_type model;
