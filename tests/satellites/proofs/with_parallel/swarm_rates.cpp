// How fast a model arrives at the members of a swarm: when the last has it, and how often the owner gave it. Each of
// them, and the owner, is a network namespace whose line carries so much in each direction, all connections together.
// Arguments: MiB, members, MB/s of a line, how many leave, how many lie, how many are silent, ms that a packet takes
// from one to another, ms that it may wait at each end of a line (then it is dropped). Needs root.
#include "../../../../bench/image.hpp"
#include "../../../../bench/wan/line.hpp"
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

/// The lines of the owner, 10.77.0.1, and of the members, from 10.77.0.2 on, and what is between them. Packets wait
/// where one sends them, are under way for a time, and wait where another receives them.
class star {
 public:
  star(std::size_t ends, double bytes_per_second, double under_way, double most_wait) {
    const char* failed = nullptr;
    for (std::size_t i = 0; i < ends; ++i) ends_.emplace_back(("10.77.0." + std::to_string(i + 1)).c_str(), "", failed);
    if (failed != nullptr) {
      std::fprintf(stderr, "%s cannot be had: %s\n", failed, std::strerror(errno));
      std::exit(1);
    }
    middle_.emplace([&](int) { carry(bytes_per_second, under_way, most_wait); });
  }
  void enter(std::size_t end) const { ends_[end].enter(); }

 private:
  struct packet {
    double due;
    std::size_t size;
    std::array<std::byte, 1500> bytes;
  };
  /// One direction of a line.
  struct way {
    std::deque<packet> waiting;
    double free_at = 0;

    void add(const packet& p, double now, double bytes_per_second, double most_wait, double then) {
      if (free_at - now > most_wait) return;
      free_at = std::max(free_at, now) + static_cast<double>(p.size) / bytes_per_second;
      waiting.push_back(p);
      waiting.back().due = free_at + then;
    }
  };

  [[noreturn]] void carry(double bytes_per_second, double under_way, double most_wait) {
    ::prctl(PR_SET_TIMERSLACK, 1);
    std::vector<way> up(ends_.size()), down(ends_.size());
    std::vector<pollfd> from;
    for (const bench::network_end& e : ends_) from.push_back({e.packets(), POLLIN, 0});
    const auto start = bench::clock::now();
    packet p;
    for (;;) {
      test::be_slow(std::chrono::microseconds(200));
      (void)::poll(from.data(), from.size(), 0);
      const double now = bench::seconds_since(start);
      for (std::size_t i = 0; i < from.size(); ++i)
        for (int k = 0; k < 64 && (from[i].revents & POLLIN) != 0; ++k) {
          const ssize_t n = ::read(from[i].fd, p.bytes.data(), p.bytes.size());
          if (n <= 0) break;
          p.size = static_cast<std::size_t>(n);
          up[i].add(p, now, bytes_per_second, most_wait, under_way);
        }
      for (way& w : up)
        for (; !w.waiting.empty() && w.waiting.front().due <= now; w.waiting.pop_front()) {
          const packet& arrives = w.waiting.front();
          const std::size_t to = std::to_integer<std::size_t>(arrives.bytes[19]) - 1;  // of 10.77.0.*
          if (to < down.size()) down[to].add(arrives, arrives.due, bytes_per_second, most_wait, 0);
        }
      for (std::size_t i = 0; i < down.size(); ++i)
        for (auto& w = down[i].waiting; !w.empty() && w.front().due <= now; w.pop_front())
          (void)!::write(from[i].fd, w.front().bytes.data(), w.front().size);
    }
  }

  std::deque<bench::network_end> ends_;
  std::optional<bench::child> middle_;
};

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
  const double rate = static_cast<double>(number(3, 4)) * 1e6;
  // the first ones leave after 1.5 s, others lie from then on, others are silent
  const std::size_t leave = number(4, 0), lie = leave + number(5, 0), silent = lie + number(6, 0);
  const star lines(members + 1, rate, static_cast<double>(number(7, 10)) / 1e3,
                   static_cast<double>(number(8, 100)) / 1e3);
  lines.enter(0);

  bench::image model(bytes);
  for (std::size_t i = 0; i < bytes; ++i) model.memory[i] = static_cast<std::byte>(i * 0x9e3779b97f4a7c15u >> 40);
  const auto tree = must(proof_tree::make(model.table.source()));
  auto owner = must(net::downloader::open({}));
  const auto ref = must(owner.add_image(model.table.source(), {.recipients = static_cast<std::uint32_t>(members)}));
  const auto beside = must(owner.add_image(tree.image().source(), {.beside = ref.id}));
  const auto alone = must(owner.add_image(model.table.source(), {}));
  auto door = must(open_swarm_door(owner, std::string_view("10.77.0.1:0")));
  const std::string where = "10.77.0.1:" + std::to_string(door.port());
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
  const auto since = [](std::chrono::steady_clock::time_point when) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - when).count();
  };
  double one = 0;
  test::joined_thread([&] {
    lines.enter(1);
    bench::image mine(bytes);
    land to(mine.table.destination());
    const auto from = std::chrono::steady_clock::now();
    (void)must(net::pull(where, alone, to));
    one = since(from);
  }).join();
  const auto from = std::chrono::steady_clock::now();
  {
    std::deque<test::joined_thread> all;
    for (std::size_t i = 0; i < members; ++i)
      all.emplace_back([&, i] {
        lines.enter(i + 1);
        auto me = must(swarm_member<net>::open("0.0.0.0:0", where));
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
        seconds[i] = since(from);
        if (--left == 0) done_with.request_stop();
        while (left > 0) (void)me.serve(std::chrono::milliseconds(100));
      });
  }
  over.request_stop();
  serving.reset();
  std::sort(seconds.begin(), seconds.end());
  const double size = static_cast<double>(bytes);
  std::printf(
      "%zu members, %zu MiB: the first after %.2f s, the last after %.2f s (one transfer: %.2f s, %.2f times); the owner gave %.2f images\n",
      members, bytes >> 20, seconds[silent], seconds.back(), one, seconds.back() / one, sent / size);
}
