#include "context.hpp"

#include <tensorpull/transports/over/udp/udp.hpp>

// SNIPPET

using usual_tcp = pipeline<raw_tensors<Mlp>, fixed_bytes<2_MiB>, tcp>;
using usual_udp = pipeline<raw_tensors<Mlp>, fit_datagram, udp>;
static_assert(by_tcp::memory.recipient <= 4096, "requests ahead cost a pull nothing");
static_assert(by_tcp::memory.owner_per_recipient == usual_tcp::memory.owner_per_recipient + 8 * 80);
static_assert(by_udp::memory.recipient <= usual_udp::memory.recipient + 235 * 1024, "8 bytes and 3 bits for a request");

static Mlp trained{}, mine{};

/// Pulls with one pipeline from an owner with another.
template <class Owner, class Recipient>
static void pulls() {
  serving_owner<Owner> from;
  const auto ref = from.owner().add_tensors(trained);
  must(ref);
  mine = {};
  const auto done = Recipient::download_tensors(from.address(), *ref, mine);
  must(done && done->outcome == outcome::completed && mine.b2[3] == 3);
}

int main() {
  trained.b2[3] = 3;
  pulls<by_tcp, by_tcp>();
  pulls<usual_udp, by_udp>();  // the window is the recipient's
}
