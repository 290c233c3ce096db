// A session that shall serve until a reference is settled, and is given the reference itself.
// EXPECT: tensorpull: serve(until_settled(ref)) or run(until_settled(ref)), not serve(ref) or run(ref)
// WITHIN_LINES: 8
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, tcp>;
void serve(net::session& session, const reference& ref) { (void)session.serve(ref); }
