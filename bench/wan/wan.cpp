// A model over a long line, in every way: one row of the suite `wan`. Arguments: ms of a round trip, Mbit/s, % of loss
// each way, KiB, rounds, seconds that a run may take, TCP's congestion control (the system's if it is left out or
// empty), for how many seconds the line carries nothing from the first second of each run on. Prints a line of JSON for
// each case, and one for the line itself. Without the right to make network namespaces it says so, and its status is 0.
#include "../alternatives/sockets.hpp"
#include "../certificate.hpp"
#include "../image.hpp"
#include "line.hpp"

#include <tensorpull/image/header.hpp>
#include <tensorpull/satellites/http/recipient/http_pull.hpp>
#include <tensorpull/satellites/parallel/parallel_pull.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/tensor_list.hpp>
#include <tensorpull/transports/host/owner.hpp>
#include <tensorpull/transports/over/tls/tls.hpp>
#include <tensorpull/transports/over/udp/udp.hpp>

#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>
#include <thread>

using namespace tensorpull;
using bench::image;

namespace {

const std::string far_address = bench::line::far_address;
constexpr std::uint32_t far_number = 0x0A4D0001;  // the same address
constexpr std::uint16_t nginx_port = 8080, quic_port = 8443;

template <class T>
auto must(T&& value) {
  if (value) return std::move(*value);
  std::fprintf(stderr, "%s\n", describe(value.error()).c_str());
  std::_Exit(1);
}
bool good(const auto& outcome) {
  if (!outcome) std::fprintf(stderr, "%s\n", describe(outcome.error()).c_str());
  return static_cast<bool>(outcome);
}

enum class ending {
  done,
  failed,
  too_late,
};
const char* text_of(ending e) {
  if (e == ending::too_late) return "too late";
  return e == ending::done ? "done" : "failed";
}
/// Runs `work` in a process of its own, so that a run that takes too long can be ended.
template <class Work>
ending run_within(double seconds, Work work) {
  const pid_t runner = ::fork();
  if (runner == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::_Exit(work() ? 0 : 1);
  }
  const int handle = static_cast<int>(::syscall(SYS_pidfd_open, runner, 0));
  pollfd end{handle, POLLIN, 0};
  const bool ended = ::poll(&end, 1, static_cast<int>(seconds * 1e3)) == 1;
  if (!ended) ::kill(runner, SIGKILL);
  int status = 0;
  ::waitpid(runner, &status, 0);
  ::close(handle);
  if (!ended) return ending::too_late;
  return status == 0 ? ending::done : ending::failed;
}
/// Becomes another program.
bool become(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (auto& w : words) arguments.push_back(w.data());
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  return false;
}

/// What is least: a connection, and all bytes. The owner sends them to whoever connects; at a second port it takes as
/// many, and answers with one byte.
class bare {
 public:
  bare(const bench::line& line, const image& from)
      : bytes_(from.memory.size()), owner_([&](int pipe) {
          line.far().enter();
          std::uint16_t giving = 0, taking = 0;
          const int gives = bench::listen_on(far_number, giving), takes = bench::listen_on(far_number, taking);
          bench::write_value(pipe, giving);
          bench::write_value(pipe, taking);
          std::thread taker([&] {
            image to(bytes_);
            serve(takes, [&](int fd) {
              const std::byte receipt{1};
              if (bench::receive_all(fd, to.memory.data(), bytes_)) bench::send_all(fd, &receipt, 1);
            });
          });
          serve(gives, [&](int fd) { bench::send_all(fd, from.memory.data(), bytes_); });
        }),
        giving_(owner_.read<std::uint16_t>()), taking_(owner_.read<std::uint16_t>()) {}

  bool pull(image& to) const {
    return bench::receive_all(bench::connect_to(far_number, giving_), to.memory.data(), bytes_);
  }
  bool give(const image& from) const {
    const int fd = bench::connect_to(far_number, taking_);
    std::byte receipt;
    return bench::send_all(fd, from.memory.data(), bytes_) && bench::receive_all(fd, &receipt, 1);
  }
  /// Seconds that a connection takes to be made: a round trip.
  double round_trip() const {
    const auto start = bench::clock::now();
    ::close(bench::connect_to(far_number, taking_));
    return bench::seconds_since(start);
  }

 private:
  template <class Do>
  static void serve(int listener, Do what) {
    for (;;) {
      const int fd = ::accept(listener, nullptr, nullptr);
      bench::no_delay(fd);
      what(fd);
      ::shutdown(fd, SHUT_WR);
      std::byte end;
      (void)bench::receive_all(fd, &end, 1);  // the other end closes first
      ::close(fd);
    }
  }
  std::size_t bytes_;
  bench::child owner_;
  std::uint16_t giving_, taking_;
};

/// Pulls what a client that has connected announces.
template <class Net>
struct collector {
  image& to;
  template <class C> void connected(C&) {}
  template <class C> void message(C& c, const tensorpull::message& m) {
    (void)good(c.pull(m.references[0], {}, to.table.destination()));
  }
  template <class C> void pulled(C&, const result<receipt>& r) { (void)good(r); }
  template <class C> void closed(C&, const error&) {}
};

/// What `send`, `recv` and the Python package may have on its way.
struct long_lines : default_limits {
  static constexpr std::size_t pipelined_requests = 16, window = 32'768;
};

/// How a transport names a place, at the end that listens and at the one that dials.
struct plain_places {
  static std::string_view listening(std::string_view at) { return at; }
  template <class Net> static auto open(std::string_view at) { return Net::downloader::open({.listen = at}); }
  static std::string_view dialling(std::string_view at) { return at; }
};
struct tls_places {
  std::pair<std::string, std::string> id = bench::own_certificate(far_address);
  tls_context own = *tls_context::make({.certificate = {.text = id.first}, .key = {.text = id.second}});
  tls_context theirs = *tls_context::make({.authorities = {.text = id.first}});
  tls_address listening(std::string_view at) const { return {at, own}; }
  template <class Net> auto open(std::string_view at) const { return Net::downloader::open(listening(at)); }
  tls_address dialling(std::string_view at) const { return {at, theirs}; }
};

/// An owner at the far end, and pulls from it, each over a connection of its own.
template <class Transport, class Chunking, class Places>
struct owner_afar {
  using net = pipeline<tensor_list, Chunking, Transport, long_lines>;
  owner_afar(const bench::line& line, const image& from, const Places& p)
      : places(p), process([&](int pipe) {
          line.far().enter();
          const std::string any = far_address + ":0";
          auto open = must(places.template open<net>(any));
          const auto published = must(open.add_image(from.table.source()));
          bench::write_value(pipe, open.port());
          bench::write_value(pipe, published);
          (void)open.run(stop_token{});
        }) {
    address = far_address + ":" + std::to_string(process.template read<std::uint16_t>());
    ref = process.template read<reference>();
  }
  bool pull(image& to) const { return pull_from(places.dialling(address), to); }
  /// The same over several connections at a time.
  bool pull(image& to, std::size_t connections) const {
    const std::string_view all[]{address};
    return pull_from(parallel_addresses<Transport>(all, connections), to);
  }
  bool pull_from(const auto& where, image& to) const {
    land in(to.table.destination());
    return good(net::pull(where, ref, in, {}));
  }
  const Places& places;
  bench::child process;
  std::string address;
  reference ref;
};
/// A server at the far end that pulls updates from clients that dial out.
template <class Transport, class Places>
struct server_afar {
  using net = pipeline<tensor_list, fixed_bytes<2_MiB>, Transport, long_lines>;
  server_afar(const bench::line& line, const image& from, const Places& p)
      : places(p), process([&](int pipe) {
          line.far().enter();
          const std::string any = far_address + ":0";
          image to(from.memory.size());
          event_loop io;
          collector<net> handler{to};
          typename net::template host<collector<net>, land> host(io, handler);
          bench::write_value(pipe, must(host.listen(places.listening(any))));
          io.run();
        }) {
    address = far_address + ":" + std::to_string(process.template read<std::uint16_t>());
  }
  /// From dialling until this end knows that the other one has all of it.
  /// If the server has given the line up meanwhile, it dials again.
  bool give(const image& from) const {
    for (;;) {
      auto session = must(net::session::connect(places.dialling(address)));
      const auto published = must(session.add_image(from.table.source(), {.recipients = 1}));
      auto done = session.send(1, {&published, 1}, {});
      if (done) done = session.serve(until_settled(published));
      if (done || done.error() != errc::connection_lost) return good(done);
    }
  }
  const Places& places;
  bench::child process;
  std::string address;
};

/// A file that is memory, so it is gone with its processes.
int file_in_memory(std::initializer_list<std::span<const std::byte>> parts) {
  const int fd = ::memfd_create("wan", 0);
  for (auto p : parts)
    for (; !p.empty();) {
      const ssize_t n = ::write(fd, p.data(), p.size());
      if (n <= 0) std::abort();
      p = p.subspan(static_cast<std::size_t>(n));
    }
  return fd;
}
std::string path_of(int file) { return "/proc/self/fd/" + std::to_string(file); }
/// TCP's congestion control, of this process's end.
std::string congestion_control() {
  std::string name;
  std::ifstream("/proc/sys/net/ipv4/tcp_congestion_control") >> name;
  return name;
}

/// A web server at the far end that has the image as a file.
class web_server {
 public:
  web_server(const bench::line& line, const image& from, std::uint64_t version) {
    std::vector<std::byte> header(from.table.schema().header_bytes);
    write_header(from.table.schema(), 0, header);
    const int model = file_in_memory({std::span<const std::byte>(header), std::span<const std::byte>(from.memory)});
    const std::string settings =
        "daemon off; master_process off; user root; pid /dev/null; error_log stderr;\n"
        "events {}\n"
        "http {\n"
        "  access_log off; sendfile on; tcp_nopush on;\n"
        "  client_body_temp_path /dev/shm; proxy_temp_path /dev/shm; fastcgi_temp_path /dev/shm;"
        "  uwsgi_temp_path /dev/shm; scgi_temp_path /dev/shm;\n"
        "  server { listen " +
        far_address + ":" + std::to_string(nginx_port) + "; location /model { alias " + path_of(model) + "; } }\n}\n";
    const int file = file_in_memory({std::as_bytes(std::span(settings))});
    process_ = std::make_unique<bench::child>([&](int) {
      line.far().enter();
      become({"nginx", "-e", "stderr", "-c", path_of(file)});
    });
    ::close(model);
    ::close(file);
    char text[24];
    std::snprintf(text, sizeof text, "xxh3:%016llx", static_cast<unsigned long long>(version));
    digest_ = text;
  }
  /// It has begun to listen, or it has not within some seconds.
  bool is_up() const {
    for (int i = 0; i < 100; ++i) {
      if (const int fd = bench::connect_to(far_number, nginx_port); fd >= 0) return ::close(fd) == 0;
      ::usleep(50'000);
    }
    return false;
  }
  bool pull(image& to) const {
    using net = pipeline<tensor_list, fixed_bytes<2_MiB>, http>;
    land in(to.table.destination());
    return good(net::pull(http_address{.url = url_, .digest = digest_}, ref_id{}, in, {}));
  }
  bool curl() const { return become({"curl", "-sSf", "-o", "/dev/null", url_}); }

 private:
  std::unique_ptr<bench::child> process_;
  std::string url_ = "http://" + far_address + ":" + std::to_string(nginx_port) + "/model", digest_;
};

/// As many bytes over HTTP/3, from the server of ngtcp2, which makes them up, to its client, with the congestion
/// control that TCP has.
class quic_server {
 public:
  quic_server(const bench::line& line, const image& from, const std::pair<std::string, std::string>& id)
      : bytes_(from.table.schema().image_bytes), name_(std::to_string(bytes_)) {
    std::string congestion = congestion_control();
    if (congestion != "bbr" && congestion != "reno") congestion = "cubic";
    const int certificate = file_in_memory({std::as_bytes(std::span(id.first))}),
              key = file_in_memory({std::as_bytes(std::span(id.second))});
    process_ = std::make_unique<bench::child>([&](int) {
      line.far().enter();
      become({"gtlsserver", "-q", "--cc=" + congestion, "--max-dyn-length=1G", far_address, std::to_string(quic_port),
              path_of(key), path_of(certificate)});
    });
    ::close(certificate);
    ::close(key);
  }
  /// The client writes a file, into memory that only this process and it see.
  bool pull() const {
    const char* const folder = "/dev/shm";
    if (::unshare(CLONE_NEWNS) != 0) return false;
    // in a chroot "/" is no mount, but the folder may be one
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 &&
        ::mount("none", folder, nullptr, MS_PRIVATE, nullptr) != 0)
      return false;
    if (::mount("tmpfs", folder, "tmpfs", 0, nullptr) != 0) return false;
    if (const pid_t client = ::fork(); client == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      become({"gtlsclient", "-q", "--exit-on-all-streams-close", "--max-window=64M", "--max-stream-window=64M",
              "--timeout=60s", std::string("--download=") + folder, far_address, std::to_string(quic_port),
              "https://" + far_address + ":" + std::to_string(quic_port) + "/" + name_});
      std::_Exit(1);
    } else {
      int status = 0;
      ::waitpid(client, &status, 0);
    }
    struct stat got{};
    return ::stat((std::string(folder) + "/" + name_).c_str(), &got) == 0 &&
           static_cast<std::uint64_t>(got.st_size) == bytes_;
  }

 private:
  std::uint64_t bytes_;
  std::string name_;
  std::unique_ptr<bench::child> process_;
};

bool there_is(const char* program) {
  std::string where = std::getenv("PATH") != nullptr ? std::getenv("PATH") : "/usr/bin";
  where += ":";
  for (std::size_t at = 0, end; (end = where.find(':', at)) != where.npos; at = end + 1)
    if (::access((where.substr(at, end - at) + "/" + program).c_str(), X_OK) == 0) return true;
  return false;
}

}  // namespace

int main(int count, char** arguments) {
  const auto argument = [&](int i, double otherwise) { return count > i ? std::atof(arguments[i]) : otherwise; };
  const bench::line_conditions conditions{.round_trip = argument(1, 40) / 1e3,
                                          .bytes_per_second = argument(2, 100) * 1e6 / 8,
                                          .loss = argument(3, 0) / 100,
                                          .congestion = count > 7 ? arguments[7] : ""};
  const auto bytes = static_cast<std::size_t>(argument(4, 64)) << 10;
  const int rounds = static_cast<int>(argument(5, 5));
  const double limit = argument(6, 60), gone = argument(8, 0);

  const bench::line line(conditions);
  if (line.failed() != nullptr) {
    std::printf(
        "{\"skipped\": \"wan is left out: it needs root and network namespaces, and %s cannot be had (%s).\"}\n",
        line.failed(), std::strerror(errno));
    return 0;
  }
  image from(bytes), to(bytes);
  testing::seeded_random(bytes).fill(from.memory);

  const plain_places plain;
  const tls_places secure;
  const bare loop(line, from);
  const owner_afar<tcp, fixed_bytes<2_MiB>, plain_places> by_tcp(line, from, plain);
  const owner_afar<tls, fixed_bytes<2_MiB>, tls_places> by_tls(line, from, secure);
  const owner_afar<udp, fit_datagram, plain_places> by_udp(line, from, plain);
  const server_afar<tcp, plain_places> up_tcp(line, from, plain);
  const server_afar<tls, tls_places> up_tls(line, from, secure);

  struct way {
    std::string name, beside;
    std::function<bool()> run;
    ending ended = ending::done;
  };
  std::vector<way> ways{{"bare push", "bare push", [&] { return loop.pull(to); }},
                        {"tcp", "bare push", [&] { return by_tcp.pull(to); }},
                        {"tls", "bare push", [&] { return by_tls.pull(to); }},
                        {"udp", "bare push", [&] { return by_udp.pull(to); }},
                        {"bare push up", "bare push up", [&] { return loop.give(from); }},
                        {"tcp up", "bare push up", [&] { return up_tcp.give(from); }},
                        {"tls up", "bare push up", [&] { return up_tls.give(from); }}};
  if (conditions.loss > 0)  // what holds one connection down
    for (const std::size_t connections : {2, 4, 8})
      ways.push_back(
          {"tcp, " + std::to_string(connections), "tcp", [&, connections] { return by_tcp.pull(to, connections); }});
  std::unique_ptr<web_server> web;
  if (!there_is("nginx") || !there_is("curl")) {
    std::printf("{\"without\": \"http and curl are left out: nginx or curl is not installed.\"}\n");
  } else {
    web = std::make_unique<web_server>(line, from, by_tcp.ref.version);
    if (web->is_up()) {
      ways.push_back({"curl", "curl", [&] { return web->curl(); }});
      ways.push_back({"http", "curl", [&] { return web->pull(to); }});
    } else std::printf("{\"without\": \"http and curl are left out: nginx does not start.\"}\n");
  }

  std::unique_ptr<quic_server> quic;
  if (!there_is("gtlsserver") || !there_is("gtlsclient")) {
    std::printf("{\"without\": \"quic is left out: ngtcp2's server or client is not installed.\"}\n");
  } else {
    quic = std::make_unique<quic_server>(line, from, secure.id);
    ways.push_back({"quic", "bare push", [&] { return quic->pull(); }});
  }

  std::vector<double> trips;
  for (int i = 0; i < 5; ++i) trips.push_back(loop.round_trip());
  // a way that has failed, or has taken too long, is left out of the rounds that follow
  std::vector<std::pair<std::string, std::function<double()>>> cases;
  for (way& w : ways)
    cases.emplace_back(w.name, [&] {
      if (gone > 0) line.go_for(gone);
      if (w.ended == ending::done) w.ended = run_within(limit, w.run);
      return 0.0;
    });
  const auto results = bench::interleave(rounds, cases, 0);  // a round that is not counted would cost minutes
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const auto s = bench::summarise(results[i].seconds);
    const char* const how = text_of(ways[i].ended);
    std::printf(
        "{\"case\": \"%s\", \"beside\": \"%s\", \"ended\": \"%s\", \"seconds\": %.4f, \"least\": %.4f, \"most\": %.4f}\n",
        ways[i].name.c_str(), ways[i].beside.c_str(), how, s.median, s.minimum, s.maximum);
  }
  const bench::line_counts& c = line.counts();
  std::printf(
      "{\"tcp\": \"%s\", \"round_trip\": %.5f, \"packets\": %llu, \"lost\": %llu, \"queue_was_full\": %llu, \"late_ms\": %.3f}\n",
      congestion_control().c_str(), bench::summarise(trips).median, static_cast<unsigned long long>(c.carried),
      static_cast<unsigned long long>(c.lost), static_cast<unsigned long long>(c.queue_was_full),
      c.carried > 0 ? 1e3 * c.late / static_cast<double>(c.carried) : 0.0);
}
