// A program whose parties talk in a Cap'n Proto schema of their own: a task has a reference, and the site pulls what it
// names.
#include "task.capnp.h"

#include <tensorpull/tensorpull.hpp>
#include <tensorpull/transports/host/owner.hpp>

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <cstdio>
#include <stop_token>
#include <string>
#include <thread>

struct Mlp {
  float w1[128][784], b1[128], w2[10][128], b2[10];
};
BOOST_HANA_ADAPT_STRUCT(Mlp, w1, b1, w2, b2);

using namespace tensorpull;
using net = pipeline<raw_tensors<Mlp>, fixed_bytes<64_KiB>, tcp>;

static reference from_capnp(wire::Reference::Reader r) {
  return {{r.getRefHigh(), r.getRefLow()}, r.getVersion(), r.getFingerprint()};
}
static void to_capnp(const reference& r, wire::Reference::Builder out) {
  out.setRefHigh(r.id.high);
  out.setRefLow(r.id.low);
  out.setVersion(r.version);
  out.setFingerprint(r.fingerprint);
}

static Mlp global_model, mine;

static int complain(const error& e) {
  std::fprintf(stderr, "%s\n", describe(e).c_str());
  return 1;
}

int main() {
  for (int i = 0; i < 10; ++i) global_model.w2[i][i] = 1.0f;
  auto owner = net::downloader::open({.listen = "127.0.0.1:0"});
  if (!owner) return complain(owner.error());
  auto ref = owner->add_tensors(global_model, {.recipients = 1});
  if (!ref) return complain(ref.error());
  std::jthread serving([&](std::stop_token stop) { owner->run(until_settled(*ref), stop); });

  capnp::MallocMessageBuilder message;
  auto task = message.initRoot<hospital::Task>();
  task.setRound(7);
  task.setSite("site-3");
  to_capnp(*ref, task.initModel());
  const kj::Array<capnp::word> sent = capnp::messageToFlatArray(message);  // travels as the program likes

  capnp::FlatArrayMessageReader arrived(sent);
  const auto mission = arrived.getRoot<hospital::Task>();
  auto done = net::download_tensors("127.0.0.1:" + std::to_string(owner->port()), from_capnp(mission.getModel()), mine);
  if (!done) return complain(done.error());
  std::printf("round %u at %s: %s, w2[7][7] = %g\n", mission.getRound(), mission.getSite().cStr(),
              to_string(done->outcome).data(), static_cast<double>(mine.w2[7][7]));
}

// Output:
// round 7 at site-3: completed, w2[7][7] = 1
