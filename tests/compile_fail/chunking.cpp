// Chunking policies that lack something.
#include "model.hpp"

struct mine : fixed_bytes<64> {
  // CASE chunking_without_needs_layout
  // EXPECT: tensorpull: a chunking policy says whether it needs the image's layout (requirement 3)
  void needs_layout() = delete;
  // CASE chunking_without_next
  // EXPECT: tensorpull: a chunking policy gives each chunk's length (requirement 4)
  void next() = delete;
  // EACH ENDS WITH
};
pipeline<raw_tensors<mlp>, mine, loopback>::model_type model;
