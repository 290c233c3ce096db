// A number where the transport takes an address.
// EXPECT: tensorpull: a transport pulls (requirement 7)
// EXPECT: tcp takes an address as text, loopback a downloader
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, tcp>;
bool get(mlp& model, const reference& ref) { return net::download_tensors(8002, ref, model).has_value(); }
