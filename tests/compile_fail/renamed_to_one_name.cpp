// Two tensors with the same new name.
// One line more than five: a policy refuses its own arguments, so the pipeline that names it stands between.
// EXPECT: tensorpull: renamed: two tensors have the same new name
// WITHIN_LINES: 6
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

const auto& schema = raw_tensors<renamed<mlp, from_to{"w", "0"}, from_to{"b", "0"}>>::schema();
