// A Unix socket beside a bare loop over one. Arguments: MiB, rounds. Prints a JSON object for each case: GiB a second.
#include "alternatives/sockets.hpp"
#include "image.hpp"
#include "measure.hpp"

#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/tensor_list.hpp>
#include <tensorpull/transports/host/owner.hpp>
#include <tensorpull/transports/over/unix_socket/unix_socket.hpp>

#include <sys/un.h>

#include <optional>

using namespace tensorpull;

namespace {

constexpr std::size_t chunk = 2_MiB, window = 4;

sockaddr_un bare_address() {
  sockaddr_un a{AF_UNIX, {}};
  std::snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "tensorpull-bare-%d", ::getpid());
  return a;
}

/// What a programmer writes without a library: requests of a chunk, a window of them in flight, no check.
struct bare {
  explicit bare(std::span<const std::byte> from)
      : owner([&, a = bare_address()](int pipe) {
          const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
          if (::bind(listener, reinterpret_cast<const sockaddr*>(&a), sizeof a) != 0 || ::listen(listener, 8) != 0)
            std::abort();
          bench::write_value(pipe, a);
          for (;;) {
            const int peer = ::accept(listener, nullptr, nullptr);
            bench::bare_request r;
            while (bench::receive_all(peer, reinterpret_cast<std::byte*>(&r), sizeof r) &&
                   bench::send_all(peer, from.data() + r.offset, r.length)) {
            }
            ::close(peer);
          }
        }) {
    const auto a = owner.read<sockaddr_un>();
    fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&a), sizeof a) != 0) std::abort();
  }
  double pull(std::span<std::byte> to) {
    bench::bare_pull(fd, to.data(), to.size(), chunk, window, [](std::size_t) {});
    return 0;
  }
  bench::child owner;
  int fd;
};

using image = bench::huge_image;

/// An owner in a process of its own, and a session that pulls from it.
template <class Transport, class Integrity>
struct ours {
  using net = pipeline<tensor_list, fixed_bytes<chunk>, Transport, Integrity>;
  ours(const image& from, const std::string& address)
      : owner([&](int pipe) {
          auto open = net::downloader::open({.listen = address});
          if (!open) std::abort();
          const auto published = open->add_image(from.table->source());
          bench::write_value(pipe, open->port());
          bench::write_value(pipe, *published);
          open->run(stop_token{});
        }) {
    const auto port = owner.template read<std::uint16_t>();
    ref = owner.template read<reference>();
    session.emplace(std::move(*net::session::connect(port != 0 ? "127.0.0.1:" + std::to_string(port) : address)));
  }
  double pull(image& to) {
    land in(to.table->destination());
    const auto done = session->pull(ref, in, {.window = window});
    if (!done) {
      std::fprintf(stderr, "%s\n", describe(done.error()).c_str());
      std::abort();
    }
    return 0;
  }
  bench::child owner;
  std::optional<typename net::session> session;
  reference ref;
};

}  // namespace

int main(int count, char** arguments) {
  const std::size_t bytes = (count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 1024) << 20;
  const int rounds = count > 2 ? std::atoi(arguments[2]) : 9;
  image from(bytes), to(bytes);
  const std::string name = "@tensorpull-" + std::to_string(::getpid());
  bare loop(from.memory);
  ours<unix_socket, unverified> plain(from, name + "-plain");
  ours<unix_socket, image_digest> digest(from, name + "-digest");
  ours<tcp, unverified> over_tcp(from, "127.0.0.1:0");
  const auto results = bench::interleave(rounds, {{"bare loop", [&] { return loop.pull(to.memory); }},
                                                  {"unix_socket, no digest", [&] { return plain.pull(to); }},
                                                  {"unix_socket, digest", [&] { return digest.pull(to); }},
                                                  {"tcp, no digest", [&] { return over_tcp.pull(to); }}});
  if (std::memcmp(from.memory.data(), to.memory.data(), bytes) != 0) std::abort();
  const double gib = static_cast<double>(bytes) / static_cast<double>(1_GiB);
  for (const auto& r : results) {
    const auto s = bench::summarise(r.seconds);
    std::printf("{\"case\": \"%s\", \"rate\": %.4f, \"least\": %.4f, \"most\": %.4f}\n", r.name.c_str(), gib / s.median,
                gib / s.maximum, gib / s.minimum);
  }
}
