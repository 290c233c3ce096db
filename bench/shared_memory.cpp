// Shared memory between two processes: landing beside memcpy, how long a view takes to open, and what recipients cost
// that only look. Prints a line of JSON for each figure.
#include "measure.hpp"

#include <tensorpull/satellites/shared_memory/shared_memory.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/transports/host/owner.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <span>
#include <string>

using namespace tensorpull;

template <std::size_t Layers>
struct model {
  std::array<std::array<std::array<float, 4096>, 64>, Layers> w;  // 1 MiB each
};
using small = model<1>;
using middle = model<256>;
using large = model<1024>;
BOOST_HANA_ADAPT_STRUCT(small, w);
BOOST_HANA_ADAPT_STRUCT(middle, w);
BOOST_HANA_ADAPT_STRUCT(large, w);

// chunks do not travel, so they are as long as they can be
template <class Model, class Integrity = image_digest>
using net = pipeline<raw_tensors<Model>, fixed_bytes<max_payload_bytes / 8 * 8>, shared_memory, Integrity>;

[[noreturn]] void give_up(const char* why) {
  std::fprintf(stderr, "%s\n", why);
  std::_Exit(1);
}
template <class T>
auto must(T result) {
  if (!result) give_up(to_string(result.error().code).data());
  return std::move(*result);
}

/// An owner in a process of its own, with one model that was allocated in shared memory.
template <class Model>
struct owner_process {
  owner_process()
      : process([this](int fd) {
          const auto m = must(make_shared_model<Model>());
          std::memset(static_cast<void*>(m.get()), 1, sizeof(Model));
          auto owner = must(net<Model>::downloader::open({.listen = address}));
          const reference added = must(owner.add_tensors(m));
          bench::write_value(fd, added);
          owner.run(stop_token{});
        }) {
    ref = process.read<reference>();
  }
  std::string address = "@tensorpull-bench-" + std::to_string(::getpid()) + "-" + std::to_string(sizeof(Model));
  bench::child process;
  reference ref;
};

/// KiB of a line such as "VmPTE:   12 kB".
long kib(const char* file, const std::string& line) {
  std::ifstream in(file);
  for (std::string text; std::getline(in, text);)
    if (text.starts_with(line)) return std::atol(text.c_str() + line.size());
  return 0;
}
/// What this process has to itself: memory that is no file's, and the tables that map the rest.
long own_kib() { return kib("/proc/self/smaps_rollup", "Anonymous:") + kib("/proc/self/status", "VmPTE:"); }

double microseconds(auto f, int rounds) {
  std::vector<double> all;
  for (int i = 0; i < rounds; ++i) {
    const auto start = bench::clock::now();
    f();
    all.push_back(1e6 * bench::seconds_since(start));
  }
  return bench::summarise(all).median;
}

/// What a program would write by hand: it copies, and hashes what it has just copied while that is in the cache.
std::uint64_t copy_and_hash(void* to, const void* from, std::size_t bytes) {
  constexpr std::size_t piece = 64 << 10;
  xxhash_digest hash;
  for (std::size_t at = 0; at < bytes; at += piece) {
    const std::span<std::byte> landed(static_cast<std::byte*>(to) + at, std::min(piece, bytes - at));
    std::memcpy(landed.data(), static_cast<const std::byte*>(from) + at, landed.size());
    hash.update(landed);
  }
  return hash.digest();
}

void landing(int rounds) {
  const owner_process<large> owner;
  auto mine = must(make_model<large>());
  const auto shown = must(net<large>::view(owner.address, owner.ref, {.unverified = true}));
  const large& there = *must(shown.model());
  std::memset(static_cast<void*>(mine.get()), 2, sizeof(large));
  std::uint64_t hashed = 0;
  const auto results = bench::interleave(
      rounds, {{"map, memcpy",
                [&] {
                  const auto view = must(net<large>::view(owner.address, owner.ref, {.unverified = true}));
                  std::memcpy(static_cast<void*>(mine.get()), must(view.model()), sizeof(large));
                  return 0.0;
                }},
               {"memcpy from memory that is mapped already",
                [&] {
                  std::memcpy(static_cast<void*>(mine.get()), &there, sizeof(large));
                  return 0.0;
                }},
               {"map, memcpy and hash in one pass",
                [&] {
                  const auto view = must(net<large>::view(owner.address, owner.ref, {.unverified = true}));
                  hashed = copy_and_hash(mine.get(), must(view.model()), sizeof(large));
                  return 0.0;
                }},
               {"no digest",
                [&] {
                  must(net<large, unverified>::download_tensors(owner.address, owner.ref, *mine));
                  return 0.0;
                }},
               {"digest",
                [&] {
                  must(net<large>::download_tensors(owner.address, owner.ref, *mine));
                  return 0.0;
                }},
               {"view, digest", [&] {
                  must(net<large>::view(owner.address, owner.ref));
                  return 0.0;
                }}});
  const double bare = bench::summarise(results[0].seconds).median, bare_cpu = bench::summarise(results[0].cpu).median;
  if (hashed == 0) give_up("nothing was hashed");
  for (const auto& r : results) {
    const auto s = bench::summarise(r.seconds);
    const double cpu = bench::summarise(r.cpu).median;
    std::printf(
        "{\"what\": \"landing 1 GiB: %s\", \"GiB/s\": %.2f, \"least\": %.2f, \"most\": %.2f, \"of map, memcpy\": %.3f, \"CPU s\": %.3f, \"of its CPU\": %.3f}\n",
        r.name.c_str(), 1 / s.median, 1 / s.maximum, 1 / s.minimum, bare / s.median, cpu, bare_cpu / cpu);
  }
}

template <class Model>
void opening(const char* size, int rounds) {
  const owner_process<Model> owner;
  const double us = microseconds([&] { (void)must(net<Model>::view(owner.address, owner.ref, {.unverified = true})); },
                                 rounds);
  std::printf("{\"what\": \"a view of %s opens, unverified\", \"us\": %.0f}\n", size, us);
}

void recipients(int count) {
  const owner_process<middle> owner;
  int results[2], go[2];
  if (::pipe(results) != 0 || ::pipe(go) != 0) give_up("no pipe");
  std::vector<pid_t> all;
  for (int i = 0; i < count; ++i) {
    all.push_back(::fork());
    if (all.back() != 0) continue;
    const long before = own_kib();
    const auto view = must(net<middle>::view(owner.address, owner.ref));
    const auto& w = must(view.model())->w;
    if (w[255][63][4095] != w[0][0][0]) give_up("wrong bytes");
    const long used = own_kib() - before;
    bench::write_value(results[1], used);
    char byte;
    (void)!::read(go[0], &byte, 1);  // all views are open at the same time
    std::_Exit(0);
  }
  std::vector<double> used;
  for (int i = 0; i < count; ++i) {
    long one = 0;
    if (::read(results[0], &one, sizeof one) != sizeof one) give_up("a recipient failed");
    used.push_back(static_cast<double>(one));
  }
  for (const pid_t p : all) {
    ::kill(p, SIGKILL);
    ::waitpid(p, nullptr, 0);
  }
  const auto s = bench::summarise(used);
  std::printf(
      "{\"what\": \"%d views of 256 MiB, verified: memory of each besides the model\", \"KiB\": %.0f, \"most\": %.0f}\n",
      count, s.median, s.maximum);
}

int main(int count, char** arguments) {
  const int rounds = count > 1 ? std::atoi(arguments[1]) : 9;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  landing(rounds);
  opening<small>("1 MiB", 20 * rounds);
  opening<large>("1 GiB", 20 * rounds);
  recipients(64);
}
