// A transport over streams that does not connect.
// EXPECT: tensorpull: a transport over streams connects: static result<stream> connect(std::string_view address
// WITHIN_LINES: 8
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : stream_transport<mine, posix_stream> {};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, mine>;
bool get(mlp& model, const reference& ref) { return net::download_tensors("there", ref, model).has_value(); }
