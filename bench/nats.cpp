// NATS beside a bare request-reply loop through the same server, with the same messages and as many requests on their
// way. Arguments: MiB, rounds, KiB of a chunk, requests on their way.
#include "image.hpp"
#include "measure.hpp"

#include <tensorpull/satellites/nats/nats.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/tensor_list.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/prctl.h>

#include <cstring>
#include <fstream>
#include <span>
#include <string>

using namespace tensorpull;
using bench::image;

namespace {

/// A server of this program's own, on loopback.
struct server {
  server() {
    // it holds the port, which whoever says SO_REUSEADDR may listen at, and the system gives to nobody else
    const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof a;
    if (::setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        ::bind(s, reinterpret_cast<sockaddr*>(&a), size) != 0 ||
        ::getsockname(s, reinterpret_cast<sockaddr*>(&a), &size) != 0)
      std::abort();
    const std::string port = std::to_string(ntohs(a.sin_port));
    url = "nats://127.0.0.1:" + port;
    pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::execlp("nats-server", "nats-server", "-a", "127.0.0.1", "-p", port.c_str(), "-l", "/dev/null",
               static_cast<char*>(nullptr));
      ::_exit(127);
    }
    for (natsConnection* c = nullptr; natsConnection_ConnectTo(&c, url.c_str()) != NATS_OK; ::usleep(10'000))
      if (::waitpid(pid, nullptr, WNOHANG) != 0) {
        std::fprintf(stderr, "nats-server does not run\n");
        std::exit(1);
      }
  }
  ~server() { ::kill(pid, SIGKILL); }
  std::string url;
  pid_t pid;
};

struct bare_request {
  std::uint64_t offset = 0, length = 0;
};

/// What its user writes with libnats: requests to a subject with an inbox for the answers, some of them on their way;
/// answers in order, copied to where they belong.
struct bare {
  static void serve(const std::string& url, int pipe, std::span<const std::byte> from) {
    natsConnection* c = nullptr;
    natsSubscription* s = nullptr;
    if (natsConnection_ConnectTo(&c, url.c_str()) != NATS_OK ||
        natsConnection_SubscribeSync(&s, c, "bare") != NATS_OK || natsConnection_Flush(c) != NATS_OK)
      std::abort();
    bench::write_value(pipe, 1);
    for (;;) {
      natsMsg* m = nullptr;
      if (natsSubscription_NextMsg(&m, s, 1000) != NATS_OK) continue;
      bare_request r;
      std::memcpy(&r, natsMsg_GetData(m), sizeof r);
      if (natsConnection_Publish(c, natsMsg_GetReply(m), from.data() + r.offset, static_cast<int>(r.length)) != NATS_OK)
        std::abort();
      natsMsg_Destroy(m);
    }
  }
  static void pull(const std::string& url, std::span<std::byte> to, std::size_t chunk, std::size_t window) {
    natsConnection* c = nullptr;
    natsInbox* inbox = nullptr;
    natsSubscription* s = nullptr;
    if (natsConnection_ConnectTo(&c, url.c_str()) != NATS_OK || natsInbox_Create(&inbox) != NATS_OK ||
        natsConnection_SubscribeSync(&s, c, inbox) != NATS_OK)
      std::abort();
    std::size_t asked = 0;
    const auto ask = [&] {
      if (asked >= to.size()) return;
      const bare_request r{asked, std::min(chunk, to.size() - asked)};
      asked += r.length;
      if (natsConnection_PublishRequest(c, "bare", inbox, &r, sizeof r) != NATS_OK) std::abort();
    };
    for (std::size_t i = 0; i < window; ++i) ask();
    for (std::size_t at = 0; at < to.size();) {
      natsMsg* m = nullptr;
      if (natsSubscription_NextMsg(&m, s, 10'000) != NATS_OK) std::abort();
      const auto bytes = static_cast<std::size_t>(natsMsg_GetDataLength(m));
      std::memcpy(to.data() + at, natsMsg_GetData(m), bytes);
      at += bytes;
      natsMsg_Destroy(m);
      ask();
    }
    natsSubscription_Destroy(s);
    natsInbox_Destroy(inbox);
    natsConnection_Destroy(c);
  }
};

using net = pipeline<tensor_list, bytes_up_to<960_KiB>, nats>;

}  // namespace

int main(int count, char** arguments) {
  const auto argument = [&](int i, std::size_t otherwise) {
    return count > i ? static_cast<std::size_t>(std::atoi(arguments[i])) : otherwise;
  };
  const std::size_t bytes = argument(1, 1024) << 20, chunk = argument(3, 512) << 10, window = argument(4, 4);
  const int rounds = static_cast<int>(argument(2, 5));
  const server there;
  image from(bytes), to(bytes);
  for (std::size_t i = 0; i < bytes; ++i) from.memory[i] = std::byte(i * 31 >> 8);
  bench::child loop([&](int pipe) { bare::serve(there.url, pipe, from.memory); });
  (void)loop.read<int>();
  bench::child owner([&](int pipe) {
    auto open = net::downloader::open({.server = {.url = there.url}});
    const auto published = open->add_image(from.table.source());
    bench::write_value(pipe, *published);
    open->run(stop_token{});
  });
  const auto ref = owner.read<reference>();
  const auto pull = [&] {
    land in(to.table.destination());
    const double before = owner.cpu();
    const auto done = net::pull(there.url, ref, in, {.window = static_cast<std::uint32_t>(window)},
                                bytes_up_to<960_KiB>{chunk});
    if (!done) {
      std::fprintf(stderr, "%s\n", describe(done.error()).c_str());
      std::abort();
    }
    return owner.cpu() - before;
  };
  const auto results = bench::interleave(rounds, {{"bare loop, libnats as its user writes it",
                                                   [&] {
                                                     const double before = loop.cpu();
                                                     bare::pull(there.url, to.memory, chunk, window);
                                                     return loop.cpu() - before;
                                                   }},
                                                  {"nats, digest", pull}});
  if (to.memory != from.memory) std::abort();
  const double mib = double(bytes) / double(1_MiB), first = bench::summarise(results[0].seconds).median;
  std::printf("NATS, %g MiB, chunks of %zu KiB, %zu on their way\n%-44s %9s %9s %9s %8s %10s\n", mib, chunk >> 10,
              window, "", "MiB/s", "min", "max", "ratio", "CPU s/GiB");
  for (const auto& r : results) {
    const auto s = bench::summarise(r.seconds);
    std::printf("%-44s %9.1f %9.1f %9.1f %8.3f %10.3f\n", r.name.c_str(), mib / s.median, mib / s.maximum,
                mib / s.minimum, first / s.median, bench::summarise(r.cpu).median * 1024 / mib);
  }
}
