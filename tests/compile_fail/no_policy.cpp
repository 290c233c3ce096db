// A type that is no policy.
// EXPECT: tensorpull: one of the types given to pipeline<...> is no policy
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, int>::downloader owner;
