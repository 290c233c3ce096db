// One recipient on TCP over loopback, 1 GiB in 16 tensors, chunks of 2 MiB, two processes: the library beside a bare socket loop.
#include "bare.hpp"
#include "measure.hpp"

#include <tensorpull/tensorpull.hpp>
#include <tensorpull/transports/tcp_owner.hpp>

#include <cstring>
#include <memory>
#include <thread>

using namespace tensorpull;

struct block {
  std::array<std::array<float, 4096>, 4096> w;
};
struct model {
  std::array<block, 16> layers;
};
BOOST_HANA_ADAPT_STRUCT(block, w);
BOOST_HANA_ADAPT_STRUCT(model, layers);

using plain = pipeline<raw_tensors<model>, fixed_bytes<2_MiB>, tcp, unverified>;
using checked = pipeline<raw_tensors<model>, fixed_bytes<2_MiB>, tcp>;

struct hello {
  std::uint16_t bare_port, owner_port;
  reference plain_ref, checked_ref;
  double digest_seconds;
};

/// The sender's process: a bare loop in one thread, the library's owner in another, both serving the same memory.
void send_models(int out, const model& m) {
  hello h{};
  const int listener = bench::listen_on_loopback(h.bare_port);
  auto owner = checked::downloader::open();
  h.owner_port = owner->port();
  const auto start = bench::clock::now();
  h.checked_ref = *owner->add_tensors(m);
  h.digest_seconds = bench::seconds_since(start);
  bench::write_value(out, h);
  std::thread bare([&] {
    for (;;) {
      const int fd = ::accept(listener, nullptr, nullptr);
      bench::bare_serve(fd, reinterpret_cast<const std::byte*>(&m));
      ::close(fd);
    }
  });
  owner->run(std::stop_token{});
}

int main(int count, char** arguments) {
  const int rounds = count > 1 ? std::atoi(arguments[1]) : 9;
  constexpr double gib = double(sizeof(model)) / double(1_GiB);
  auto source = make_model<model>();
  std::memset(source->get(), 1, sizeof(model));
  bench::child sender([&](int out) { send_models(out, **source); });
  const auto h = sender.read<hello>();
  source = failure(errc::cancelled);  // the child has its own copy
  auto to = make_model<model>();
  std::memset(to->get(), 2, sizeof(model));
  const int fd = bench::connect_to_loopback(h.bare_port);
  const std::string address = "127.0.0.1:" + std::to_string(h.owner_port);
  auto plain_session = *plain::session::connect(address);
  auto checked_session = *checked::session::connect(address);
  const auto other = [&](auto f) {
    return [&sender, f] {
      const double cpu = sender.cpu();
      f();
      return sender.cpu() - cpu;
    };
  };
  const auto must = [](const auto& r) {
    if (!r) std::fprintf(stderr, "a transfer failed: %s at %llu errno %d\n", to_string(r.error().code).data(), (unsigned long long)r.error().at, r.error().system), std::abort();
  };
  const auto results = bench::interleave(rounds, {
      {"bare pull loop, 4 in flight", other([&] { bench::bare_pull(fd, reinterpret_cast<std::byte*>(to->get()), sizeof(model), 2_MiB, 4); })},
      {"tensorpull, no digest", other([&] { must(plain_session.download_tensors(h.checked_ref, **to)); })},
      {"tensorpull, digest of the whole", other([&] { must(checked_session.download_tensors(h.checked_ref, **to)); })},
  });
  const double bare = bench::summarise(results[0].seconds).median, bare_cpu = bench::summarise(results[0].cpu).median;
  std::printf("1 GiB in 16 tensors, TCP over loopback, chunks of 2 MiB, %d rounds; the owner's digest took %.3f s beforehand\n", rounds, h.digest_seconds);
  std::printf("%-34s %8s %8s %8s %8s %10s %8s\n", "", "GiB/s", "min", "max", "ratio", "CPU s/GiB", "ratio");
  for (const auto& r : results) {
    const auto s = bench::summarise(r.seconds), c = bench::summarise(r.cpu);
    std::printf("%-34s %8.2f %8.2f %8.2f %8.3f %10.3f %8.3f\n", r.name.c_str(), gib / s.median, gib / s.maximum, gib / s.minimum, bare / s.median, c.median / gib, c.median / bare_cpu);
  }
}
