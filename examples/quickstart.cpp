// A recipient pulls a model from its owner over TCP, in chunks that land directly in the model's own memory.
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/transports/host/owner.hpp>

#include <cstdio>
#include <stop_token>
#include <string>
#include <thread>

struct Mlp {
  float w1[128][784], b1[128], w2[10][128], b2[10];
};
BOOST_HANA_ADAPT_STRUCT(Mlp, w1, b1, w2, b2);  // names, dtypes and shapes come from the struct

using namespace tensorpull;
using net = pipeline<raw_tensors<Mlp>, fixed_bytes<64_KiB>, tcp>;

static Mlp trained, mine;

static int complain(const error& e) {
  std::fprintf(stderr, "%s\n", describe(e).c_str());
  return 1;
}

int main() {
  for (int i = 0; i < 10; ++i) trained.w2[i][i] = 1.0f;

  auto owner = net::downloader::open({.listen = "127.0.0.1:0"});
  if (!owner) return complain(owner.error());
  auto ref = owner->add_tensors(trained, {.recipients = 1});
  if (!ref) return complain(ref.error());
  std::jthread serving([&](std::stop_token stop) { owner->run(until_settled(*ref), stop); });

  auto done = net::download_tensors("127.0.0.1:" + std::to_string(owner->port()), *ref, mine);
  if (!done) return complain(done.error());
  std::printf("%s: %llu bytes in %llu chunks, digest %016llx\n", to_string(done->outcome).data(),
              static_cast<unsigned long long>(done->bytes), static_cast<unsigned long long>(done->chunks),
              static_cast<unsigned long long>(done->digest));
  std::printf("w2[7][7] = %g\n", static_cast<double>(mine.w2[7][7]));
}

// Output:
// completed: 407344 bytes in 7 chunks, digest b13dc63db4b0ea6f
// w2[7][7] = 1
