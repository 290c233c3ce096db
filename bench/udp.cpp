// UDP beside a bare loop with the same datagrams, and what loss and delay cost. Arguments: MiB without faults, MiB with
// faults, rounds.
#include "image.hpp"
#include "measure.hpp"

#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/tensor_list.hpp>
#include <tensorpull/testing/faulty_datagrams.hpp>
#include <tensorpull/transports/over/udp/udp.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>

#include <cstring>
#include <memory>

using namespace tensorpull;
using bench::image;

namespace {

/// As long as a datagram of ours: a word, a prefix, and 1,112 bytes of payload.
struct bare_head {
  std::uint64_t word = 0, offset = 0, rest[9]{};
};
constexpr std::size_t bare_payload = 1112;
struct bare_request {
  std::uint64_t word = 0, offset = 0, count = 0, rest[9]{};
};

/// What a programmer writes without a library, knowing that nothing is lost: the sender sends what it is asked for,
/// `batch` datagrams a request, one call each, from the model's memory; the receiver keeps some requests in flight and
/// lets the kernel write into the model's memory.
struct bare {
  static constexpr std::uint64_t batch = 16, in_flight = 8;

  static void serve(int pipe, std::span<const std::byte> from) {
    const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof a;
    if (::bind(fd, reinterpret_cast<sockaddr*>(&a), sizeof a) != 0 ||
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&a), &size) != 0)
      std::abort();
    bench::write_value(pipe, ntohs(a.sin_port));
    for (;;) {
      bare_request r;
      sockaddr_in to{};
      socklen_t length = sizeof to;
      if (::recvfrom(fd, &r, sizeof r, 0, reinterpret_cast<sockaddr*>(&to), &length) < 0) continue;
      for (std::uint64_t i = 0; i < r.count && r.offset < from.size(); ++i, r.offset += bare_payload) {
        bare_head h;
        h.offset = r.offset;
        iovec parts[] = {{&h, sizeof h},
                         {const_cast<std::byte*>(from.data()) + r.offset,
                          std::min<std::size_t>(bare_payload, from.size() - r.offset)}};
        msghdr m{};
        m.msg_name = &to;
        m.msg_namelen = length;
        m.msg_iov = parts;
        m.msg_iovlen = 2;
        while (::sendmsg(fd, &m, 0) < 0) {
        }
      }
    }
  }
  static void pull(std::uint16_t port, std::span<std::byte> to) {
    const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons(port);
    const int room = 4 << 20;
    (void)::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    if (::connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a) != 0) std::abort();
    std::uint64_t asked = 0;
    const auto ask = [&] {
      if (asked >= to.size()) return;
      bare_request r;
      r.offset = asked;
      r.count = batch;
      asked += batch * bare_payload;
      (void)::send(fd, &r, sizeof r, 0);
    };
    for (std::uint64_t i = 0; i < in_flight; ++i) ask();
    for (std::uint64_t at = 0, n = 0; at < to.size(); at += bare_payload) {
      bare_head h;
      iovec parts[] = {{&h, sizeof h}, {to.data() + at, std::min<std::size_t>(bare_payload, to.size() - at)}};
      msghdr m{};
      m.msg_iov = parts;
      m.msg_iovlen = 2;
      if (::recvmsg(fd, &m, 0) < 0 || h.offset != at) std::abort();
      if (++n % batch == 0) ask();
    }
    ::close(fd);
  }
};

testing::datagram_faults faults{};
/// Of the owner's process, in memory that both share.
testing::datagram_fault_counts* counts = nullptr;

struct troubled_udp : datagram_transport<troubled_udp, testing::faulty_datagrams<udp_link>> {
  static constexpr std::string_view any_address = "127.0.0.1:0";
  static result<link> connect(std::string_view address, std::chrono::milliseconds, const stop_token&) noexcept {
    return around(udp_link::connect(address), nullptr);
  }
  static result<link> open(std::string_view address) noexcept { return around(udp_link::open(address), counts); }
  static result<link> around(result<udp_link> inner, testing::datagram_fault_counts* count) noexcept {
    if (!inner) return failure(inner.error());
    auto own = faults;
    own.seed += count != nullptr;
    return link(std::move(*inner), own, count);
  }
};

/// An owner in a process of its own, and pulls from it.
template <class Transport>
struct ours {
  using net = pipeline<tensor_list, fit_datagram, Transport>;
  explicit ours(const image& from)
      : owner([&](int pipe) {
          auto open = net::downloader::open();
          const auto published = open->add_image(from.table.source());
          bench::write_value(pipe, open->port());
          bench::write_value(pipe, *published);
          open->run(stop_token{});
        }) {
    address = "127.0.0.1:" + std::to_string(owner.template read<std::uint16_t>());
    ref = owner.template read<reference>();
  }
  double pull(image& to) {
    land in(to.table.destination());
    const auto done = net::pull(address, ref, in, {});
    if (!done) {
      std::fprintf(stderr, "%s\n", describe(done.error()).c_str());
      std::abort();
    }
    return 0;
  }
  bench::child owner;
  std::string address;
  reference ref;
};

/// A line of JSON for each case. `sent`: bytes of payload that the owner sent, of the image.
void tell(const char* group, std::size_t bytes, const std::vector<bench::series>& results,
          const std::vector<double>& sent) {
  const double mib = double(bytes) / double(1_MiB);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto s = bench::summarise(results[i].seconds);
    std::printf(
        "{\"group\": \"%s\", \"case\": \"%s\", \"mib\": %g, \"rate\": %.2f, \"least\": %.2f, \"most\": %.2f, \"sent\": %.3f}\n",
        group, results[i].name.c_str(), mib, mib / s.median, mib / s.maximum, mib / s.minimum,
        i < sent.size() ? sent[i] : 0.0);
  }
}

}  // namespace

int main(int count, char** arguments) {
  const auto argument = [&](int i, std::size_t otherwise) {
    return count > i ? static_cast<std::size_t>(std::atoi(arguments[i])) : otherwise;
  };
  const std::size_t whole = argument(1, 256) << 20, part = argument(2, 64) << 20;
  const int rounds = static_cast<int>(argument(3, 5));
  {
    image from(whole), to(whole);
    for (std::size_t i = 0; i < whole; ++i) from.memory[i] = std::byte(i * 31 >> 8);
    const bench::child loop([&](int pipe) { bare::serve(pipe, from.memory); });
    const auto port = const_cast<bench::child&>(loop).read<std::uint16_t>();
    ours<udp> checked(from);
    const auto results = bench::interleave(rounds, {{"bare loop, sendmsg and recvmsg",
                                                     [&] {
                                                       bare::pull(port, to.memory);
                                                       return 0.0;
                                                     }},
                                                    {"udp, digest", [&] { return checked.pull(to); }}});
    if (to.memory != from.memory) std::abort();
    tell("without loss", whole, results, {});
  }
  {
    counts = static_cast<testing::datagram_fault_counts*>(
        ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    image from(part), to(part);
    for (std::size_t i = 0; i < part; ++i) from.memory[i] = std::byte(i * 29 >> 7);
    struct weather {
      const char* name;
      testing::datagram_faults faults;
    };
    using namespace std::chrono_literals;
    const std::array weathers{
        weather{"no faults", {}}, weather{"5 % loss each way", {.lost = 50}},
        weather{"5 % loss, 2 % doubled, 5 % overtaken", {.lost = 50, .doubled = 20, .overtaken = 50}},
        weather{"20 ms of delay", {.delay = 10ms}},
        weather{"20 ms of delay, 5 % loss each way", {.lost = 50, .delay = 10ms}}};
    std::vector<std::unique_ptr<ours<troubled_udp>>> owners;
    std::vector<std::pair<std::string, std::function<double()>>> cases;
    std::vector<double> sent(weathers.size());
    for (const auto& w : weathers) {
      faults = w.faults;
      owners.push_back(std::make_unique<ours<troubled_udp>>(from));
      cases.emplace_back(w.name, [&, i = owners.size() - 1] {
        faults = weathers[i].faults;
        const auto before = counts->sent_bytes;
        owners[i]->pull(to);
        sent[i] = double(counts->sent_bytes - before) / 1200 * 1112 / double(part);
        if (to.memory != from.memory) std::abort();
        std::memset(to.memory.data(), 0, 64);
        return 0.0;
      });
    }
    tell("with faults", part, bench::interleave(rounds, cases), sent);
  }
}
