// Many recipients of one model over TCP, against one owner, or against a coordinator and replicas of it. All are
// processes of this program on one machine. Arguments: recipients, processes that they share, rounds. Prints the rows
// of the table of the page "Scaling out": medians, in parentheses the fastest and the slowest round.
#include <tensorpull/consumers/any_schema/digest.hpp>
#include <tensorpull/satellites/replica/replica_owner.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/transports/host/owner.hpp>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace tensorpull;

namespace {

/// 16 MiB.
struct model {
  float w[4 << 20];
};

}  // namespace

BOOST_HANA_ADAPT_STRUCT(model, w);

namespace {

constexpr ref_id shared{31, 32};

using net = pipeline<raw_tensors<model>, fixed_bytes<2_MiB>, tcp>;

std::unique_ptr<model> made() {
  auto m = std::make_unique<model>();
  std::uint32_t x = 1;
  for (float& f : m->w) f = static_cast<float>((x = x * 1664525u + 1013904223u) >> 8);
  return m;
}

struct child {
  pid_t pid;
  int from;  // what it writes
};
template <class Run>
child start(Run run) {
  int ends[2];
  if (::pipe(ends) != 0) std::abort();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(ends[0]);
    run(ends[1]);
    ::_exit(0);
  }
  ::close(ends[1]);
  return {pid, ends[0]};
}
template <class T>
void tell(int to, const T& value) {
  if (::write(to, &value, sizeof value) != static_cast<ssize_t>(sizeof value)) ::_exit(1);
}
template <class T>
T hear(int from) {
  T value{};
  if (::read(from, &value, sizeof value) != static_cast<ssize_t>(sizeof value)) {
    std::fprintf(stderr, "a process has ended\n");
    std::exit(1);
  }
  return value;
}
std::string local(std::uint16_t port) { return "127.0.0.1:" + std::to_string(port); }

struct ended {
  std::uint64_t completed = 0, sent = 0;
};

/// Seconds until all recipients have the model, and what the coordinator says.
double round_of(std::size_t owners, std::size_t recipients, std::size_t processes, ended& said) {
  const child coordinator = start([&](int out) {
    const auto m = made();
    auto owner = net::downloader::open();
    const auto ref = owner
                         ? owner->add_tensors(*m, {.recipients = static_cast<std::uint32_t>(recipients), .id = shared})
                         : result<reference>(failure(errc::io));
    if (!ref) ::_exit(1);
    tell(out, owner->port());
    tell(out, *ref);
    owner->run(until_settled(*ref));
    const auto how = owner->settlement_of(*ref);
    tell(out, ended{how->counts.completed, how->counts.bytes_sent});
    for (;;) owner->run(stop_token());
  });
  const auto port = hear<std::uint16_t>(coordinator.from);
  const auto ref = hear<reference>(coordinator.from);
  std::vector<child> replicas;
  std::vector<std::string> doors;
  for (std::size_t i = 0; owners > 1 && i < owners; ++i) {
    replicas.push_back(start([&](int out) {
      const auto m = made();
      auto replica = replica_of<net>::open("127.0.0.1:0", local(port));
      if (!replica || !replica->add_tensors(*m, {.id = shared})) ::_exit(1);
      tell(out, replica->port());
      replica->run(stop_token());
    }));
    doors.push_back(local(hear<std::uint16_t>(replicas.back().from)));
  }
  if (doors.empty()) doors.push_back(local(port));
  const auto began = std::chrono::steady_clock::now();
  std::vector<child> pullers;
  for (std::size_t p = 0; p < processes; ++p)
    pullers.push_back(start([&, p](int out) {
      std::uint64_t failed = 0;
      {
        std::vector<std::jthread> threads;
        std::atomic<std::uint64_t> bad{0};
        for (std::size_t i = p; i < recipients; i += processes)
          threads.emplace_back([&, i] {
            digest hashed;
            const auto done = net::pull(doors[i % doors.size()], ref, hashed);
            if (!done || done->outcome != outcome::completed || !done->confirmed) ++bad;
          });
        threads.clear();
        failed = bad;
      }
      tell(out, failed);
    }));
  std::uint64_t failed = 0;
  for (const child& c : pullers) failed += hear<std::uint64_t>(c.from);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (failed != 0)
    std::fprintf(stderr, "%llu recipients have failed\n", static_cast<unsigned long long>(failed)), std::exit(1);
  said = hear<ended>(coordinator.from);
  pullers.insert(pullers.end(), replicas.begin(), replicas.end());
  pullers.push_back(coordinator);
  for (const child& c : pullers) {
    ::kill(c.pid, SIGKILL);
    ::waitpid(c.pid, nullptr, 0);
    ::close(c.from);
  }
  return seconds;
}

}  // namespace

int main(int count, char** arguments) {
  const auto number = [&](int i, std::size_t otherwise) {
    return i < count ? static_cast<std::size_t>(std::strtoull(arguments[i], nullptr, 10)) : otherwise;
  };
  const std::size_t recipients = number(1, 1000), processes = number(2, 8), rounds = number(3, 3);
  const std::size_t owners[]{1, 2, 4};
  double load[3]{};
  if (::getloadavg(load, 1) == 1) std::printf("load before: %.1f\n", load[0]);
  std::fflush(stdout);  // each process of a round has a copy of what was not written
  std::vector<double> took[3];
  ended said[3];
  for (std::size_t r = 0; r < rounds; ++r)
    for (std::size_t i = 0; i < 3; ++i) took[i].push_back(round_of(owners[i], recipients, processes, said[i]));
  for (std::size_t i = 0; i < 3; ++i) {
    std::sort(took[i].begin(), took[i].end());
    const double middle = took[i][took[i].size() / 2],
                 gib = static_cast<double>(recipients * sizeof(model)) / (1 << 30);
    const std::string who = owners[i] == 1 ? "one owner" : std::to_string(owners[i]) + " replicas and a coordinator";
    std::printf("| %s | %.1f (%.1f to %.1f) | %.1f | %.1f MiB | %llu |\n", who.c_str(), middle, took[i].front(),
                took[i].back(), gib / middle, static_cast<double>(said[i].sent) / (1 << 20),
                static_cast<unsigned long long>(said[i].completed));
  }
}
