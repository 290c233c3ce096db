// The quickstart's owner without its header.
// EXPECT: tensorpull: #include <tensorpull/transports/host/owner.hpp> to own tensors
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 30
#include "model.hpp"

using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, tcp>;
auto owner = net::downloader::open({.listen = "127.0.0.1:0"});
