// A pipeline without a chunking policy.
// EXPECT: tensorpull: a pipeline needs a chunking policy: add fixed_bytes<N>
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

pipeline<raw_tensors<mlp>, loopback>::downloader owner;
