// Tensors of different shapes cannot be one.
// One line more than five: a policy refuses its own arguments, so the pipeline that names it stands between.
// EXPECT: tensorpull: tied: two tensors that are tied have different dtypes or shapes
// WITHIN_LINES: 6
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

const auto& schema = raw_tensors<tied<mlp, from_to{"w", "b"}>>::schema();
