// A tie to a tensor that the struct does not have.
// One line more than five: a policy refuses its own arguments, so the pipeline that names it stands between.
// EXPECT: tensorpull: tied: an alias or a kept name is not the name of a tensor, or a tensor is tied twice
// WITHIN_LINES: 6
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

const auto& schema = raw_tensors<tied<mlp, from_to{"w", "embed"}>>::schema();
