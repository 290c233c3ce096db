// The one name that safetensors keeps for itself.
// One line more than five: a policy refuses its own arguments, so the pipeline that names it stands between.
// EXPECT: tensorpull: a tensor may not be named __metadata__
// WITHIN_LINES: 6
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

const auto& schema = raw_tensors<renamed<mlp, from_to{"w", "__metadata__"}>>::schema();
