// One end of a transfer over TCP, compiled for this machine and for another one. As owner it publishes a model of known
// values; as recipient it pulls that model into a struct of its own, whose values it checks, and into a safetensors
// file, whose bytes pair.py checks.
//   edge_peer own                            prints the port and the reference; status 0: two pulls have completed
//   edge_peer pull 127.0.0.1:PORT REF FILE   status 0: both have completed and the values are right
#include "edge_model.hpp"

#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/transports/host/owner.hpp>

#include <cstdio>
#include <string>
#include <string_view>

namespace {

using namespace tensorpull;
using namespace std::chrono_literals;

#ifdef TENSORPULL_EDGE_PORTABLE_DIGEST
using integrity = basic_image_digest<xxh3_64>;  // without a library
#else
using integrity = image_digest;
#endif
using net = pipeline<raw_tensors<edge::model>, fixed_bytes<4_KiB>, tcp, integrity>;

edge::model here;

int complain(const char* what, const error& e) {
  std::fprintf(stderr, "edge_peer: %s: %s\n", what, describe(e).c_str());
  return 1;
}

int own() {
  edge::fill(here);
  auto owner = net::downloader::open({.listen = "127.0.0.1:0"});
  if (!owner) return complain("it cannot listen", owner.error());
  const auto ref = owner->add_tensors(here, {.recipients = 2});
  if (!ref) return complain("it cannot publish", ref.error());
  const auto digits = to_digits(*ref);
  std::printf("%u %.48s\n", unsigned{owner->port()}, digits.data());
  std::fflush(stdout);
  owner->run(until_settled(*ref));
  const auto status = owner->status_of(*ref);
  if (status && status->completed == 2) return 0;
  std::fprintf(stderr, "edge_peer: not both pulls have completed\n");
  return 1;
}

int pull(std::string_view address, std::string_view digits, std::string_view path) {
  const auto ref = parse_reference(digits);
  if (!ref) return 2;
  const pull_options options{.per_request_timeout = 120s};
  const auto landed = net::download_tensors(address, *ref, here, options);
  if (!landed) return complain("the struct", landed.error());
  auto file = safetensors_file::create(path, {.fsync = false});
  if (!file) return complain("the file", file.error());
  const auto written = net::pull(address, *ref, *file, options);
  if (!written) return complain("the file", written.error());
  if (landed->outcome != outcome::completed || written->outcome != outcome::completed ||
      landed->digest != written->digest) {
    std::fprintf(stderr, "edge_peer: the two pulls have not completed alike\n");
    return 1;
  }
  if (!edge::holds_the_values(here)) {
    std::fprintf(stderr, "edge_peer: the struct has other values\n");
    return 1;
  }
  std::printf("completed: %llu bytes, digest %016llx, %zu bits, %s-endian\n",
              static_cast<unsigned long long>(landed->bytes), static_cast<unsigned long long>(landed->digest),
              8 * sizeof(std::size_t), little_endian_machine ? "little" : "big");
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count == 2 && words[1] == std::string_view("own")) return own();
  if (count == 5 && words[1] == std::string_view("pull")) return pull(words[2], words[3], words[4]);
  std::fputs("usage: edge_peer own | edge_peer pull ADDRESS REF FILE\n", stderr);
  return 2;
}
