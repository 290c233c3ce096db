// A member of the owner's type without its header: in another file, which has it, the class would be another one.
// EXPECT: tensorpull: #include <tensorpull/transports/host/owner.hpp> to own tensors
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 30
#include "model.hpp"

using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, tcp>;
struct server {
  net::downloader owner;
  int rounds = 45;
};
