// A chunking policy that names only its slot.
// EXPECT: tensorpull: a chunking policy has a longest chunk (requirement 2)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct nothing {
  using is_chunking_policy = void;
};
pipeline<raw_tensors<mlp>, nothing, loopback>::model_type model;
