// TLS beside a bare loop over OpenSSL with the same cipher, in both directions: an owner that is pulled from, and a
// device that dials out and is pulled from. Arguments: MiB, rounds.
#include "alternatives/sockets.hpp"
#include "certificate.hpp"
#include "image.hpp"
#include "measure.hpp"

#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/tensor_list.hpp>
#include <tensorpull/transports/host/owner.hpp>
#include <tensorpull/transports/over/tls/tls.hpp>

#include <optional>
#include <thread>

using namespace tensorpull;
using bench::image;

namespace {

constexpr std::size_t chunk = 2_MiB, window = 4;

/// What a programmer writes with OpenSSL and without this library: blocking sockets, a call for each chunk. Nothing is
/// checked beyond TLS.
struct bare {
  SSL* ssl;
  bare(int fd, const std::pair<std::string, std::string>& id, bool server) {
    bench::no_delay(fd);
    SSL_CTX* const c = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    const detail::bio_ptr certificate(BIO_new_mem_buf(id.first.data(), static_cast<int>(id.first.size()))),
        key(BIO_new_mem_buf(id.second.data(), static_cast<int>(id.second.size())));
    const detail::certificate_ptr x(PEM_read_bio_X509(certificate.get(), nullptr, nullptr, nullptr));
    const detail::key_ptr k(PEM_read_bio_PrivateKey(key.get(), nullptr, nullptr, nullptr));
    if (server) {
      SSL_CTX_use_certificate(c, x.get());
      SSL_CTX_use_PrivateKey(c, k.get());
    }
    ssl = SSL_new(c);
    SSL_set_fd(ssl, fd);
    if ((server ? SSL_accept(ssl) : SSL_connect(ssl)) != 1) std::abort();
  }
  void write(const void* from, std::size_t n) const {
    std::size_t did = 0;
    if (SSL_write_ex(ssl, from, n, &did) != 1) std::abort();
  }
  bool read(void* to, std::size_t n) const {
    for (auto* p = static_cast<std::byte*>(to); n > 0;) {
      std::size_t did = 0;
      if (SSL_read_ex(ssl, p, n, &did) != 1) return false;
      p += did;
      n -= did;
    }
    return true;
  }
  void pull(std::span<std::byte> to) const {
    for (std::size_t asked = 0, got = 0; got < to.size();) {
      for (; asked < to.size() && asked < got + window * chunk; asked += chunk) {
        const bench::bare_request r{asked, std::min<std::size_t>(chunk, to.size() - asked)};
        write(&r, sizeof r);
      }
      const std::size_t n = std::min<std::size_t>(chunk, to.size() - got);
      if (!read(to.data() + got, n)) std::abort();
      got += n;
    }
  }
  void serve(std::span<const std::byte> from, std::size_t most = ~std::size_t{0}) const {
    bench::bare_request r;
    for (std::size_t sent = 0; sent < most && read(&r, sizeof r); sent += r.length)
      write(from.data() + r.offset, r.length);
  }
};

/// Pulls what the peer that has connected announces.
template <class Net>
struct collector {
  image& to;
  template <class C> void connected(C&) {}
  template <class C> void message(C& c, const tensorpull::message& m) {
    if (!c.pull(m.references[0], {.window = window}, to.table.destination())) std::abort();
  }
  template <class C> void pulled(C&, const result<receipt>& r) {
    if (!r) std::abort();
  }
  template <class C> void closed(C&, const error&) {}
};

/// An owner and a collector in a process of their own, and a session with each.
template <class Integrity>
struct ours {
  using net = pipeline<tensor_list, fixed_bytes<chunk>, tls, Integrity>;
  ours(const image& from, image& landed, const std::pair<std::string, std::string>& id)
      : process([&](int pipe) {
          const tls_options o{.certificate = {.text = id.first}, .key = {.text = id.second}};
          const tls_address any{"127.0.0.1:0", *tls_context::make(o)};
          const host_options patient{
              .budgets = {.accept = std::chrono::hours(1), .idle = std::chrono::hours(1)}};  // the cases take turns
          auto owner = net::downloader::open(any, patient);
          bench::write_value(pipe, owner->port());
          bench::write_value(pipe, *owner->add_image(from.table.source()));
          event_loop io;
          collector<net> handler{landed};
          typename net::template host<collector<net>, land> host(io, handler, patient);
          bench::write_value(pipe, *host.listen(any));
          std::thread collecting([&] { io.run(); });
          owner->run(stop_token{});
        }) {
    const tls_options o{.authorities = {.text = id.first}};
    const auto context = *tls_context::make(o);
    const auto port = [&] { return "127.0.0.1:" + std::to_string(process.template read<std::uint16_t>()); };
    const std::string first = port();
    ref = process.template read<reference>();
    const std::string second = port();
    down.emplace(std::move(*net::session::connect(tls_address{first, context})));
    up.emplace(std::move(*net::session::connect(tls_address{second, context})));
  }
  double pull(image& to) {
    land in(to.table.destination());
    const auto done = down->pull(ref, in, {.window = window});
    if (!done) {
      std::fprintf(stderr, "%s\n", describe(done.error()).c_str());
      std::abort();
    }
    return 0;
  }
  double give(const image& from) {
    const auto published = *up->add_image(from.table.source(), {.recipients = 1});
    if (!up->send(1, {&published, 1}, {}) || !up->serve(until_settled(published))) std::abort();
    return 0;
  }
  bench::child process;
  reference ref;
  std::optional<typename net::session> down, up;
};

void table(const char* title, std::size_t bytes, const std::vector<bench::series>& results) {
  std::printf("%s\n%-34s %9s %9s %9s %8s\n", title, "", "MiB/s", "min", "max", "ratio");
  const double first = bench::summarise(results[0].seconds).median, mib = static_cast<double>(bytes) / (1 << 20);
  for (const auto& r : results) {
    const auto s = bench::summarise(r.seconds);
    std::printf("%-34s %9.0f %9.0f %9.0f %8.3f\n", r.name.c_str(), mib / s.median, mib / s.maximum, mib / s.minimum,
                first / s.median);
  }
  std::printf("\n");
}

}  // namespace

int main(int count, char** arguments) {
  const std::size_t bytes = static_cast<std::size_t>(count > 1 ? std::atoi(arguments[1]) : 512) << 20;
  const int rounds = count > 2 ? std::atoi(arguments[2]) : 7;
  const auto id = bench::own_certificate("127.0.0.1");
  image from(bytes), to(bytes);
  for (std::size_t i = 0; i < bytes; ++i) from.memory[i] = static_cast<std::byte>(i * 31 >> 8);
  std::uint16_t port = 0;
  const int listener = bench::listen_on_loopback(port);
  // one connection to be pulled from; over the other, the end that has dialled out is pulled from
  const bench::child other([&](int) {
    const bare serving(::accept(listener, nullptr, nullptr), id, true),
        pulling(::accept(listener, nullptr, nullptr), id, true);
    std::thread collecting([&] {
      char go = 0;
      while (pulling.read(&go, 1)) {
        pulling.pull(to.memory);
        pulling.write(&go, 1);
      }
    });
    serving.serve(from.memory);
  });
  ours<unverified> plain(from, to, id);
  ours<image_digest> checked(from, to, id);
  const bare down(bench::connect_to_loopback(port), id, false), up(bench::connect_to_loopback(port), id, false);
  std::printf("bare: %s %s, ours: %s %s, %zu MiB, chunks of 2 MiB\n\n", SSL_get_version(down.ssl),
              SSL_get_cipher_name(down.ssl), std::string(checked.down->stream().version()).c_str(),
              std::string(checked.down->stream().cipher()).c_str(), bytes >> 20);
  table("an owner is pulled from", bytes,
        bench::interleave(rounds, {{"bare loop",
                                    [&] {
                                      down.pull(to.memory);
                                      return 0.0;
                                    }},
                                   {"tls, no digest", [&] { return plain.pull(to); }},
                                   {"tls, digest", [&] { return checked.pull(to); }}}));
  if (to.memory != from.memory) std::abort();
  const auto bare_up = [&] {
    char go = 1;
    up.write(&go, 1);
    up.serve(from.memory, bytes);
    return up.read(&go, 1) ? 0.0 : 1.0;
  };
  table("a device that has dialled out is pulled from", bytes,
        bench::interleave(rounds, {{"bare loop", bare_up},
                                   {"tls, no digest", [&] { return plain.give(from); }},
                                   {"tls, digest", [&] { return checked.give(from); }}}));
}
