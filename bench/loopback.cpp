// In one process: loopback beside memcpy; and landing in memory that was never touched, with and without huge pages.
#include "measure.hpp"

#include <tensorpull/tensorpull.hpp>

#include <sys/mman.h>

#include <cstring>
#include <memory>

using namespace tensorpull;

struct block {
  std::array<std::array<float, 4096>, 2048> w;
};
struct model {
  std::array<block, 16> layers;
};
BOOST_HANA_ADAPT_STRUCT(block, w);
BOOST_HANA_ADAPT_STRUCT(model, layers);

using plain = pipeline<raw_tensors<model>, fixed_bytes<2_MiB>, loopback, unverified>;
using checked = pipeline<raw_tensors<model>, fixed_bytes<2_MiB>, loopback>;

int main(int count, char** arguments) {
  const int rounds = count > 1 ? std::atoi(arguments[1]) : 9;
  constexpr double gib = double(sizeof(model)) / double(1_GiB);
  auto source = make_model<model>(), warm = make_model<model>();
  std::memset(source->get(), 1, sizeof(model));
  std::memset(warm->get(), 2, sizeof(model));
  auto plain_owner = std::make_unique<plain::downloader>();
  auto checked_owner = std::make_unique<checked::downloader>();
  const auto plain_ref = plain_owner->add_tensors(**source);
  const auto checked_ref = checked_owner->add_tensors(**source);
  const auto must = [](const auto& r) {
    if (!r) std::abort();
    return 0.0;
  };
  // the plain pages are what an application gets from malloc or new for a model of this size
  const auto fresh = [&](int advice) {
    void* const p = ::mmap(nullptr, sizeof(model), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) std::abort();
    ::madvise(p, sizeof(model), advice);
    must(plain::download_tensors(*plain_owner, *plain_ref, *static_cast<model*>(p)));
    ::munmap(p, sizeof(model));
    return 0.0;
  };
  const auto results = bench::interleave(
      rounds,
      {
          {"memcpy, whole",
           [&] {
             std::memcpy(warm->get(), source->get(), sizeof(model));
             return 0.0;
           }},
          {"memcpy, 2 MiB at a time",
           [&] {
             for (std::size_t at = 0; at < sizeof(model); at += 2_MiB)
               std::memcpy(reinterpret_cast<std::byte*>(warm->get()) + at,
                           reinterpret_cast<const std::byte*>(source->get()) + at, 2_MiB);
             return 0.0;
           }},
          {"loopback, no digest", [&] { return must(plain::download_tensors(*plain_owner, *plain_ref, **warm)); }},
          {"loopback, digest of the whole",
           [&] { return must(checked::download_tensors(*checked_owner, *checked_ref, **warm)); }},
          {"loopback into fresh memory, 4 KiB pages", [&] { return fresh(MADV_NOHUGEPAGE); }},
          {"loopback into fresh memory, huge pages", [&] { return fresh(MADV_HUGEPAGE); }},
          {"loopback into make_model()",
           [&] {
             auto to = make_model<model>();
             return must(plain::download_tensors(*plain_owner, *plain_ref, **to));
           }},
      });
  std::printf("%.1f GiB in 16 tensors, one process, chunks of 2 MiB, %d rounds\n%-42s %8s %8s %8s %8s\n", gib, rounds,
              "", "GiB/s", "min", "max", "ratio");
  const double bare = bench::summarise(results[0].seconds).median;
  for (const auto& r : results) {
    const auto s = bench::summarise(r.seconds);
    std::printf("%-42s %8.2f %8.2f %8.2f %8.3f\n", r.name.c_str(), gib / s.median, gib / s.maximum, gib / s.minimum,
                bare / s.median);
  }
}
