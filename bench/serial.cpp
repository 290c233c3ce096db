// A model over a serial line, beside a loop that only moves bytes over the same line: two pseudo-terminals and a thread
// that is the wire. Paced, it is 115,200 baud ten times as fast: 115,200 bytes a second. Unpaced, it carries what the
// processor makes, so that the share is that of the bytes which it carried. Prints a line of JSON for each case.
// Arguments: rounds, and whether to leave the 16 MiB out (1).
#include "measure.hpp"
#include "noisy_line.hpp"

#include <tensorpull/tensorpull.hpp>
#include <tensorpull/transports/over/serial/serial.hpp>

#include <cstring>
#include <memory>
#include <stop_token>
#include <thread>

using namespace tensorpull;

struct small {
  float w[65'536];
};
struct large {
  float w[4'194'304];
};
BOOST_HANA_ADAPT_STRUCT(small, w);
BOOST_HANA_ADAPT_STRUCT(large, w);

constexpr std::uint64_t paced = 115'200;
constexpr test::line_noise one_in_10000{.flipped = 100};

/// What a case measured: seconds, and the bytes that the line carried towards the recipient.
struct measured {
  double seconds, carried;
};

serial_port port_at(const std::string& path) {
  auto port = serial_port::open(*parse_serial_address(path));
  if (!port) std::abort();
  return std::move(*port);
}
/// Bytes alone, as many as the model has.
measured bare(std::size_t bytes, std::uint64_t rate) {
  test::noisy_line line({}, rate);
  serial_port from = port_at(line.right()), to = port_at(line.left());
  const std::vector<std::byte> source(bytes, std::byte{1});
  const auto start = bench::clock::now();
  std::thread writer([&] {
    for (std::span<const std::byte> rest(source); !rest.empty();) {
      const io_result io = from.write(rest);
      rest = rest.subspan(io.bytes);
      if (io.bytes == 0) (void)from.wait(false, true, std::chrono::milliseconds(100));
    }
  });
  std::vector<std::byte> got(4096);
  for (std::size_t n = 0; n < bytes;) {
    const io_result io = to.read(got);
    n += io.bytes;
    if (io.bytes == 0) (void)to.wait(true, false, std::chrono::milliseconds(100));
  }
  const double seconds = bench::seconds_since(start);
  writer.join();
  return {seconds, double(bytes)};
}
template <class Model, std::uint64_t Chunk>
measured pull(std::uint64_t rate, test::line_noise noise, std::uint64_t seed) {
  using net = pipeline<raw_tensors<Model>, fixed_bytes<Chunk>, basic_serial<Chunk + 128>>;
  static const auto source = [] {
    auto m = std::make_unique<Model>();
    for (float& x : m->w) x = float(&x - m->w);
    return m;
  }();
  noise.seed = seed;
  test::noisy_line line(noise, rate);
  auto owner = net::downloader::open({.listen = line.right()});
  if (!owner) std::abort();
  const auto ref = owner->add_tensors(std::as_const(*source), {.recipients = 1});
  std::jthread serving([&](std::stop_token stop) { owner->run(stop); });
  auto mine = std::make_unique<Model>();
  const auto start = bench::clock::now();
  const auto done = net::download_tensors(line.left(), *ref, *mine);
  const double seconds = bench::seconds_since(start);
  if (!done || std::memcmp(mine.get(), source.get(), sizeof(Model)) != 0) {
    std::fprintf(stderr, "bench_serial: %s\n", done ? "other bytes" : to_string(done.error().code).data());
    std::exit(1);
  }
  return {seconds, double(line.carried(1))};
}

struct row {
  const char* name;
  std::size_t bytes;
  std::function<measured(std::uint64_t)> run;  ///< with a seed
  double least_goodput = 0, most_idle = 1;  ///< to be reached
  std::vector<double> rates{}, carried{};  ///< bytes a second: of the model, of the line
};

int main(int count, char** arguments) {
  const int rounds = count > 1 ? std::atoi(arguments[1]) : 5;
  const bool quick = count > 2 && std::atoi(arguments[2]) != 0;
  const auto run = [&](std::vector<row> rows) {  // the first is the loop
    for (int round = 1; round <= rounds; ++round)
      for (row& r : rows) {
        const measured m = r.run(static_cast<std::uint64_t>(round));
        r.rates.push_back(double(r.bytes) / m.seconds);
        r.carried.push_back(m.carried / m.seconds);
      }
    const double rate = bench::summarise(rows[0].rates).median;  // of the loop
    for (const row& r : rows) {
      const auto s = bench::summarise(r.rates);
      const double carried = bench::summarise(r.carried).median, of = r.most_idle < 1 ? rate : carried;
      std::printf(
          "{\"case\": \"%s\", \"bytes\": %zu, \"rate\": %.0f, \"least\": %.0f, \"most\": %.0f, \"goodput\": %.3f, \"idle\": %.3f, \"least_goodput\": %.2f, \"most_idle\": %.2f}\n",
          r.name, r.bytes, s.median, s.minimum, s.maximum, s.median / of, 1 - carried / rate, r.least_goodput,
          r.most_idle);
    }
    std::fflush(stdout);
  };
  run({{"paced, bytes alone", sizeof(small), [](std::uint64_t) { return bare(sizeof(small), paced); }},
       {"paced, chunks of 512 bytes", sizeof(small), [](std::uint64_t s) { return pull<small, 512>(paced, {}, s); },
        0.8, 0.05},
       {"paced, chunks of 2 KiB", sizeof(small), [](std::uint64_t s) { return pull<small, 2048>(paced, {}, s); }, 0.9,
        0.05},
       {"paced, one byte in 10,000 flipped, chunks of 512 bytes", sizeof(small),
        [](std::uint64_t s) { return pull<small, 512>(paced, one_in_10000, s); }, 0.6, 0.5}});
  if (quick) return 0;
  run({{"unpaced, bytes alone", sizeof(large), [](std::uint64_t) { return bare(sizeof(large), 0); }},
       {"unpaced, chunks of 512 bytes", sizeof(large), [](std::uint64_t s) { return pull<large, 512>(0, {}, s); }, 0.8},
       {"unpaced, chunks of 2 KiB", sizeof(large), [](std::uint64_t s) { return pull<large, 2048>(0, {}, s); }, 0.9}});
}
