// How fast a model arrives from two owners at once over TCP, with a digest of the whole and with proofs. Arguments:
// MiB, rounds.
#include "../../../../bench/image.hpp"
#include "../../../../bench/measure.hpp"

#include <tensorpull/satellites/parallel/parallel_pull.hpp>
#include <tensorpull/satellites/proofs/proved_pull.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/tensor_list.hpp>
#include <tensorpull/transports/host/owner.hpp>

#include <array>

using namespace tensorpull;

namespace {

using net = pipeline<tensor_list, fixed_bytes<2_MiB>, tcp>;

template <class T>
T must(result<T> r) {
  if (r) return std::move(*r);
  std::fprintf(stderr, "%s\n", describe(r.error()).c_str());
  std::abort();
}

}  // namespace

int main(int count, char** arguments) {
  const std::size_t bytes = (count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 256) << 20;
  const int rounds = count > 2 ? std::atoi(arguments[2]) : 9;
  bench::huge_image from(bytes), to(bytes);
  const auto tree = must(proof_tree::make(from.table->source()));
  struct published {
    std::uint16_t port;
    reference model, tree;
  };
  const ref_id id{1, 2};
  const auto owner = [&](int pipe) {
    auto open = must(net::downloader::open({.listen = "127.0.0.1:0"}));
    published p{open.port(), must(open.add_image(from.table->source(), {.id = id})), {}};
    p.tree = must(open.add_image(tree.image().source(), {.id = {3, 4}}));
    bench::write_value(pipe, p);
    open.run(stop_token{});
  };
  bench::child first(owner), second(owner);
  const auto a = first.read<published>(), b = second.read<published>();
  const std::array<std::string, 2> texts{"127.0.0.1:" + std::to_string(a.port), "127.0.0.1:" + std::to_string(b.port)};
  const std::array<std::string_view, 2> where{texts[0], texts[1]};
  const proved_reference of{a.model, a.tree, tree.root(), tree.image_bytes()};
  const std::vector<std::pair<std::string, std::function<double()>>> cases{
      {"two owners, digest",
       [&] {
         land in(to.table->destination());
         const parallel_addresses<tcp> both(where);
         must(net::pull(both, a.model, in));
         return 0.0;
       }},
      {"two owners, proved",
       [&] {
         land in(to.table->destination());
         const parallel_addresses<tcp> both(where);
         if (must(pull_proved<net>(both, of, in)).wrong != 0) std::abort();
         return 0.0;
       }},
      {"one owner, proved", [&] {
         land in(to.table->destination());
         std::string_view one[]{where[0]};
         must(pull_proved<net>(std::span(one), of, in));
         return 0.0;
       }}};
  for (const auto& r : bench::interleave(rounds, cases)) {
    const auto s = bench::summarise(r.seconds), c = bench::summarise(r.cpu);
    const double gib = static_cast<double>(bytes) / static_cast<double>(1_GiB);
    std::printf("%-32s %6.2f GiB/s (%.2f to %.2f), %.2f s of processor a GiB\n", r.name.c_str(), gib / s.median,
                gib / s.maximum, gib / s.minimum, c.median / gib);
  }
  return 0;
}
