// How fast a model arrives at the members of a swarm, each with a limit on what it sends: when the last has it, and how
// often the owner gave it. Arguments: MiB, members, MB/s of each (0: no limit), how many leave, how many lie, how many
// are silent.
#include "../../../../bench/image.hpp"
#include "../../../../bench/measure.hpp"
#include "support/threads.hpp"

#include <tensorpull/satellites/parallel/swarm/swarm_door.hpp>
#include <tensorpull/satellites/parallel/swarm/swarm_member.hpp>
#include <tensorpull/satellites/proofs/proved_pull.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/tensor_list.hpp>
#include <tensorpull/transports/host/owner.hpp>

#include <atomic>
#include <deque>
#include <optional>

using namespace tensorpull;

namespace {

using net = pipeline<tensor_list, fixed_bytes<1_MiB>, tcp>;

template <class T>
T must(result<T> r) {
  if (r) return std::move(*r);
  std::fprintf(stderr, "%s\n", describe(r.error()).c_str());
  std::abort();
}

void wait_until(std::chrono::steady_clock::time_point when) {
  test::be_slow(std::max<std::chrono::nanoseconds>(when - std::chrono::steady_clock::now(), {}));
}

}  // namespace

int main(int count, char** arguments) {
  const auto number = [&](int i, std::uint64_t otherwise) {
    return count > i ? std::strtoull(arguments[i], nullptr, 10) : otherwise;
  };
  const std::size_t bytes = number(1, 16) << 20;
  const std::size_t members = number(2, 16);
  const std::uint64_t rate = number(3, 4) * 1'000'000;
  // the first ones leave after 1.5 s, others lie from then on, others are silent
  const std::size_t leave = number(4, 0), lie = leave + number(5, 0), silent = lie + number(6, 0);

  bench::image model(bytes);
  for (std::size_t i = 0; i < bytes; ++i) model.memory[i] = static_cast<std::byte>(i * 0x9e3779b97f4a7c15u >> 40);
  const auto tree = must(proof_tree::make(model.table.source()));
  auto owner = must(net::downloader::open({}));
  const auto ref = must(owner.add_image(model.table.source(), {.recipients = static_cast<std::uint32_t>(members)}));
  const auto beside = must(owner.add_image(tree.image().source(), {.beside = ref.id}));
  host_options limits;
  limits.limits.owner_bytes_per_second = rate;
  auto door = must(open_swarm_door(owner, std::string_view("127.0.0.1:0"), limits));
  const std::string where = "127.0.0.1:" + std::to_string(door.port());
  const proved_reference known{ref, beside, tree.root(), tree.image_bytes()};

  std::atomic<std::size_t> left{members - silent};
  std::stop_source over, done_with;
  double sent = 0;  // by the owner, when the last of the others has it
  std::vector<double> seconds(members);
  std::optional<test::joined_thread> serving(std::in_place, [&] {
    owner.run([&](const auto& o) {
      if (left == 0 && sent == 0) sent = static_cast<double>(must(o.status_of(ref)).bytes_sent);
      return over.stop_requested();
    });
  });
  const auto from = std::chrono::steady_clock::now();
  {
    std::deque<test::joined_thread> all;
    for (std::size_t i = 0; i < members; ++i)
      all.emplace_back([&, i] {
        swarm_options options;
        options.host = limits;
        auto me = must(swarm_member<net>::open("127.0.0.1:0", where, options));
        bench::image mine(bytes);
        land to(mine.table.destination());
        pull_options how;
        std::stop_source gone;
        std::optional<test::joined_thread> bad;
        const auto later = from + std::chrono::milliseconds(1500);
        if (i < silent) how.stop = i < leave ? gone.get_token() : done_with.get_token();
        if (i < leave) {
          bad.emplace([&] {
            wait_until(later);
            gone.request_stop();
          });
        } else if (i < lie) {
          bad.emplace([&](const std::stop_token& stop) {
            wait_until(later);
            for (std::size_t at = 0; !stop.stop_requested(); at = (at + 4093) % bytes) {
              mine.memory[at] ^= std::byte{1};
              if (at < 4093) test::look_again_soon();
            }
          });
        } else if (i < silent) {
          how.progress = [&](const progress_event&) {
            while (left > 0 && std::chrono::steady_clock::now() > later) test::look_again_soon();
          };
          how.progress_interval = std::chrono::milliseconds(1);
        }
        const auto done = pull_proved<net>(me, known, to, {}, how);
        if (i < silent) {
          while (i >= leave && i < lie && left > 0) (void)me.serve(std::chrono::milliseconds(100));
          return;
        }
        if (!done) std::fprintf(stderr, "%s\n", describe(done.error()).c_str());
        seconds[i] = std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
        if (--left == 0) done_with.request_stop();
        while (left > 0) (void)me.serve(std::chrono::milliseconds(100));
      });
  }
  over.request_stop();
  serving.reset();
  std::sort(seconds.begin(), seconds.end());
  const double size = static_cast<double>(bytes), one = rate != 0 ? size / static_cast<double>(rate) : 0;
  std::printf(
      "%zu members, %zu MiB: the first after %.2f s, the last after %.2f s (one transfer: %.2f s, %.2f times); the owner gave %.2f images\n",
      members, bytes >> 20, seconds[silent], seconds.back(), one, seconds.back() / one, sent / size);
}
