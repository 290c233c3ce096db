// A transport without a downloader.
// EXPECT: tensorpull: a transport names its owner (requirement 5)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : loopback {
  struct downloader;
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, mine>::model_type model;
