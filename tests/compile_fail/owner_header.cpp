// Owners without their header.
// MAX_LINES: 30
#include "model.hpp"

using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, tcp>;

// CASE owner_header_forgotten
// EXPECT: tensorpull: #include <tensorpull/transports/host/owner.hpp> to own tensors
// MAX_LINES: 24
auto owner = net::downloader::open();

// CASE owner_header_forgotten_for_a_member
// EXPECT: tensorpull: #include <tensorpull/transports/host/owner.hpp> to own tensors
struct server {
  net::downloader owner;
  int rounds = 45;
};

// CASE owner_header_forgotten_with_options
// EXPECT: tensorpull: #include <tensorpull/transports/host/owner.hpp> to own tensors
auto owner = net::downloader::open({.listen = "127.0.0.1:0"});
