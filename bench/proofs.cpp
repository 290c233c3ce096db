// BLAKE3, and a pull over TCP whose groups are proved, beside one that compares a digest. Arguments: MiB, rounds.
#include "image.hpp"
#include "measure.hpp"

#include <tensorpull/satellites/proofs/proved_pull.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/tensor_list.hpp>
#include <tensorpull/transports/host/owner.hpp>


#include <optional>

using namespace tensorpull;

namespace {

using net = pipeline<tensor_list, fixed_bytes<2_MiB>, tcp>;

using image = bench::huge_image;

template <class T>
T must(result<T> r) {
  if (r) return std::move(*r);
  std::fprintf(stderr, "%s\n", describe(r.error()).c_str());
  std::abort();
}

using kernel = void (*)(detail::blake3::words&, const std::byte*, std::size_t, std::uint64_t) noexcept;
double hash_by(kernel k, std::span<const std::byte> all) {
  detail::blake3::words out, sum{};
  for (std::size_t at = 0; at + 65536 <= all.size(); at += 65536) {
    k(out, all.data() + at, 64, at / 1024);
    sum[0] ^= out[0];
  }
  return sum[0] == 0x12345678 ? 1e-9 : 0;  // it is needed
}

}  // namespace

int main(int count, char** arguments) {
  const std::size_t bytes = (count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 1024) << 20;
  const int rounds = count > 2 ? std::atoi(arguments[2]) : 9;
  image from(bytes), to(bytes);
  const auto tree = must(proof_tree::make(from.table->source()));
  struct published {
    std::uint16_t port;
    reference model, tree;
  };
  bench::child owner([&](int pipe) {
    auto open = must(net::downloader::open({.listen = "127.0.0.1:0"}));
    published p{open.port(), must(open.add_image(from.table->source())), {}};
    p.tree = must(open.add_image(tree.image().source(), {.beside = p.model.id}));
    bench::write_value(pipe, p);
    open.run(stop_token{});
  });
  const auto p = owner.read<published>();
  const std::string address = "127.0.0.1:" + std::to_string(p.port);
  const proved_reference of{p.model, p.tree, tree.root(), tree.image_bytes()};
  const auto proved_with = [&](std::uint64_t most) {
    land in(to.table->destination());
    std::string_view where[]{address};
    must(pull_proved<net>(std::span(where), of, in, {.most_bytes = most}));
    return 0.0;
  };
  std::vector<std::pair<std::string, std::function<double()>>> cases{
      {"pull, digest",
       [&] {
         land in(to.table->destination());
         must(net::pull(address, p.model, in));
         return 0.0;
       }},
      {"pull, proved, 4 KiB of values", [&] { return proved_with(4096); }},
      {"pull, proved, groups of 64 KiB", [&] { return proved_with(std::uint64_t{1} << 40); }},
      {"tree", [&] { return must(proof_tree::make(from.table->source())).image_bytes() == 0 ? 1.0 : 0.0; }},
      {"4 chunks at a time", [&] { return hash_by(detail::blake3::subtree_4, from.memory); }}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2"))
    cases.push_back({"8 chunks at a time", [&] { return hash_by(detail::blake3::subtree_8, from.memory); }});
  if (__builtin_cpu_supports("avx512f"))
    cases.push_back({"16 chunks at a time", [&] { return hash_by(detail::blake3::subtree_16, from.memory); }});
#endif
  for (const auto& r : bench::interleave(rounds, cases)) {
    const auto s = bench::summarise(r.seconds), c = bench::summarise(r.cpu);
    const double gib = static_cast<double>(bytes) / static_cast<double>(1_GiB);
    std::printf("%-32s %6.2f GiB/s (%.2f to %.2f), %.2f s of processor a GiB\n", r.name.c_str(), gib / s.median,
                gib / s.maximum, gib / s.minimum, c.median / gib);
  }
  return 0;
}
