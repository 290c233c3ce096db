// A perceptron of 0.4 MB on an open connection: how long one pull takes, bare and complete. Each process keeps to a
// core of its own: where the scheduler puts a waking process costs more than what is measured, for the bare loop as for
// the library.
#include "alternatives/sockets.hpp"
#include "measure.hpp"

#include <tensorpull/tensorpull.hpp>
#include <tensorpull/transports/host/owner.hpp>

#include <sched.h>

#include <memory>
#include <stop_token>
#include <thread>

using namespace tensorpull;

struct perceptron {
  std::array<std::array<float, 784>, 128> w1;
  std::array<float, 128> b1;
  std::array<std::array<float, 128>, 10> w2;
  std::array<float, 10> b2;
};
BOOST_HANA_ADAPT_STRUCT(perceptron, w1, b1, w2, b2);

using checked = pipeline<raw_tensors<perceptron>, fixed_bytes<2_MiB>, tcp>;
using parts = checked::parts;

struct hello {
  std::uint16_t bare_port, owner_port;
  reference ref;
};

void keep_to_core(int core) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  (void)::sched_setaffinity(0, sizeof one, &one);  // a machine with one core has no choice
}

void send_models(int out) {
  keep_to_core(1);
  static perceptron m{};
  hello h{};
  const int listener = bench::listen_on_loopback(h.bare_port);
  auto owner = checked::downloader::open();
  h.owner_port = owner->port();
  h.ref = *owner->add_tensors(m);
  bench::write_value(out, h);
  std::thread bare([&] {
    const int fd = ::accept(listener, nullptr, nullptr);
    bench::no_delay(fd);
    bench::bare_request r;
    while (bench::receive_all(fd, reinterpret_cast<std::byte*>(&r), sizeof r))
      if (!bench::send_all(fd, reinterpret_cast<const std::byte*>(&m) + r.offset, r.length)) return;
  });
  owner->run(std::stop_token{});
}

int main(int count, char** arguments) {
  const int rounds = count > 1 ? std::atoi(arguments[1]) : 2000;
  bench::child sender([](int out) { send_models(out); });
  const auto h = sender.read<hello>();
  keep_to_core(0);
  static perceptron to{};
  const int fd = bench::connect_to_loopback(h.bare_port);
  const std::string address = "127.0.0.1:" + std::to_string(h.owner_port);
  auto session = *checked::session::connect(address);

  // Without digest and confirmation: the image's bytes, asked for on an open connection as the library asks, and no
  // more.
  posix_stream raw(bench::connect_to_loopback(h.owner_port));
  ignore_messages handler;
  no_owner none;
  buffer_pool<> pool;
  endpoint<parts::framing, parts::limits, no_owner, ignore_messages> end(none, pool, handler);
  std::uint32_t id = 1;
  const auto unconfirmed = [&] {
    checked::consumer into(to);
    transfer<checked::consumer, parts::chunking, unverified> t(into, {.ref = h.ref.id}, {}, id);
    end.begin_pull();
    const std::uint64_t all = h.ref.fingerprint != 0 ? raw_tensors<perceptron>::schema().image_bytes : 0;
    while (!t.ended() && t.landed_bytes() < all)
      if (const auto did = pump_once(end, t, raw, {}, std::chrono::milliseconds(50)); !did) std::abort();
    // the confirmation stays unsent; the connection goes on with the next pull
    id = t.next_id();
    end.end_pull(t);
  };
  const auto results = bench::interleave(rounds, {
                                                     {"bare pull loop",
                                                      [&] {
                                                        bench::bare_pull(fd, reinterpret_cast<std::byte*>(&to),
                                                                         sizeof to, 2_MiB, 1, [](std::size_t) {});
                                                        return 0.0;
                                                      }},
                                                     {"no digest, no confirmation",
                                                      [&] {
                                                        unconfirmed();
                                                        return 0.0;
                                                      }},
                                                     {"complete: described, digest, confirmed",
                                                      [&] {
                                                        if (!session.download_tensors(h.ref, to)) std::abort();
                                                        return 0.0;
                                                      }},
                                                 });
  std::printf("a perceptron of %zu bytes on an open connection, %d rounds\n%-40s %10s %10s %10s %8s\n",
              sizeof(perceptron), rounds, "", "median ms", "min", "max", "ratio");
  const double bare = bench::summarise(results[0].seconds).median;
  for (const auto& r : results) {
    const auto s = bench::summarise(r.seconds);
    std::printf("%-40s %10.3f %10.3f %10.3f %8.2f\n", r.name.c_str(), 1e3 * s.median, 1e3 * s.minimum, 1e3 * s.maximum,
                s.median / bare);
  }
}
