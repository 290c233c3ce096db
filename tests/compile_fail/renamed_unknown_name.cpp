// A change of a name that no tensor has.
// One line more than five: a policy refuses its own arguments, so the pipeline that names it stands between.
// EXPECT: tensorpull: renamed: an old name is neither the name of a tensor nor the leading components of one
// WITHIN_LINES: 6
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

const auto& schema = raw_tensors<renamed<mlp, from_to{"weight", "0.weight"}>>::schema();
