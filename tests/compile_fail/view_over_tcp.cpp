// A view of a model over a transport that shares no memory.
// EXPECT: tensorpull: this transport has no views, since it shares no memory between programs
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 14
#include "model.hpp"

using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, tcp>;
bool look(const reference& ref) { return net::view("127.0.0.1:1", ref).has_value(); }
