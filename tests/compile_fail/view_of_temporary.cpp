// A view of a model that is gone at once.
// EXPECT: deleted
// WITHIN_LINES: 5
// MAX_ERRORS: 2
// MAX_LINES: 24
#include "model.hpp"

const source_view view = raw_tensors<mlp>::source(mlp{});
