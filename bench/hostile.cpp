// What peers that mean ill cost the others: honest recipients in a process of their own, paced at half of what they get
// alone, beside attackers in processes at nice 19. Compared with the same attack on a program that only takes what it
// is sent, so that what the attackers themselves cost the machine is not counted. Over TCP and UDP; forged datagrams
// need a raw socket (root), and are left out without it. Then the same recipients beside each stranger of the tests'
// list, at owners over TCP, TLS and HTTP, at a replica and at a program with sessions, compared with what they get
// alone. usage: bench_hostile [SECONDS [ROUNDS [ATTACK]]]; a line of JSON for each attack.
#include "strangers.hpp"

#include <tensorpull/framing/word_framing.hpp>
#include <tensorpull/satellites/http/owner/http_owner.hpp>
#include <tensorpull/satellites/http/recipient/http_pull.hpp>
#include <tensorpull/satellites/replica/replica_owner.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/tensor_list.hpp>
#include <tensorpull/transports/host/owner.hpp>
#include <tensorpull/transports/over/udp/udp.hpp>

#include "certificate.hpp"
#include "measure.hpp"

#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace tensorpull;
using namespace std::chrono_literals;
constexpr ref_id published{0x60075, 1};
constexpr std::size_t tensors = 256, tensor_bytes = 256 * 1024, recipients = 4;
constexpr auto tick = 5ms;

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "bench_hostile: %s\n", what);
  std::exit(1);
}
std::string tensor_name(std::size_t i) { return "layer." + std::to_string(i) + ".w"; }
std::string local(std::uint16_t port) { return "127.0.0.1:" + std::to_string(port); }

/// A process that writes one value when it has it, and ends with its parent or with this object.
class process {
 public:
  template <class Run>
  explicit process(Run run) {
    int ends[2];
    if (::pipe(ends) != 0) give_up("no pipe");
    id_ = ::fork();
    if (id_ < 0) give_up("no process");
    if (id_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(ends[0]);
      run(ends[1]);
      ::_exit(0);
    }
    ::close(ends[1]);
    from_ = ends[0];
  }
  process(const process&) = delete;
  process(process&& other) noexcept : id_(std::exchange(other.id_, -1)), from_(std::exchange(other.from_, -1)) {}
  ~process() {
    if (id_ > 0) {
      ::kill(id_, SIGKILL);
      ::waitpid(id_, nullptr, 0);
    }
    if (from_ >= 0) ::close(from_);
  }
  template <class T>
  T value() {
    T t{};
    if (::read(from_, &t, sizeof t) != sizeof t) give_up("a process ended too early");
    return t;
  }

 private:
  pid_t id_ = -1;
  int from_ = -1;
};
template <class T>
void tell(int to, const T& value) {
  if (::write(to, &value, sizeof value) != sizeof value) ::_exit(1);
}

/// What owners publish, and its version.
struct model {
  std::vector<float> data = std::vector<float>(tensors * tensor_bytes / sizeof(float));
  std::uint64_t extent = tensor_bytes / sizeof(float);
  std::vector<std::string> names;
  std::vector<tensor_view> views;

  result<dynamic_image> image() {
    std::mt19937 random(1);
    for (float& f : data) f = static_cast<float>(random());
    for (std::size_t i = 0; i < tensors; ++i) names.push_back(tensor_name(i));
    for (std::size_t i = 0; i < tensors; ++i)
      views.push_back(
          {names[i], dtype::f32, {&extent, 1}, reinterpret_cast<const std::byte*>(data.data() + i * extent)});
    return dynamic_image::make(std::span<const tensor_view>(views));
  }
};
template <class Owner>
void own(int to, result<Owner> owner) {
  model m;
  const auto image = m.image();
  if (!image || !owner || !owner->add_tensors(*image, {.id = published})) ::_exit(1);
  tell(to, owner->port());
  owner->run(std::stop_token{});
}
pull_options patient() { return {.per_request_timeout = 60s}; }

/// The drivers: each owns at a port that it tells, and pulls from there.
template <class Net>
struct plain {
  static void own(int to) { ::own(to, Net::downloader::open({})); }
  template <class To>
  static void pull(std::uint16_t port, To& to) {
    (void)Net::pull(local(port), {published, 0, 0}, to, patient());
  }
};
using tcp_net = pipeline<tensor_list, fixed_bytes<1_MiB>, tcp>;
using over_tcp = plain<tcp_net>;
using over_udp = plain<pipeline<tensor_list, fit_datagram, udp>>;

struct over_tls {
  using net = pipeline<tensor_list, fixed_bytes<1_MiB>, tls>;
  static inline const std::pair<std::string, std::string> certificate = bench::own_certificate("127.0.0.1");
  static void own(int to) {
    const auto context = tls_context::make(
        {.certificate = {.text = certificate.first}, .key = {.text = certificate.second}});
    if (!context) ::_exit(1);
    ::own(to, net::downloader::open(tls_address{"127.0.0.1:0", *context}));
  }
  template <class To>
  static void pull(std::uint16_t port, To& to) {
    const auto context = tls_context::make({.authorities = {.text = certificate.first}});
    if (!context) ::_exit(1);
    (void)net::pull(tls_address{local(port), *context}, {published, 0, 0}, to, patient());
  }
};

struct over_http {
  static void own(int to) {
    using net = pipeline<tensor_list, fixed_bytes<1_MiB>, http_only<tcp>>;
    ::own(to, net::downloader::open({.listen = "127.0.0.1:0"}));
  }
  template <class To>
  static void pull(std::uint16_t port, To& to) {
    using net = pipeline<tensor_list, fixed_bytes<1_MiB>, http>;
    const std::string url = "http://" + local(port) + "/v1/model/latest";
    const auto key = to_digits(published);
    (void)net::pull(http_address{.url = url, .bearer = {key.data(), key.size()}}, {published, 0, 0}, to, patient());
  }
};

/// A replica, whose coordinator is a process of its own.
struct over_replica {
  static void own(int to) {
    process coordinator([](int up) { over_tcp::own(up); });
    ::own(to, replica_of<tcp_net>::open("127.0.0.1:0", local(coordinator.value<std::uint16_t>())));
  }
  template <class To>
  static void pull(std::uint16_t port, To& to) {
    over_tcp::pull(port, to);
  }
};

/// A program that gives each connection a session on a thread of its own, and two seconds to ask for what is there.
struct with_sessions {
  static void own(int to) {
    model m;
    const auto image = m.image();
    auto listener = tcp_listener::open("127.0.0.1:0", 4096);
    if (!image || !listener) ::_exit(1);
    publisher<tcp_net::parts> once;  // computes the version, which no stranger then costs
    const auto version = once.add_tensors(*image);
    if (!version) ::_exit(1);
    tell(to, listener->port());
    for (;;) {
      auto next = listener->accept(1s);
      if (!next) continue;
      std::thread([stream = std::move(*next), &image, v = version->version]() mutable {
        auto session = tcp_net::session::over(std::move(stream));
        if (!session) return;
        const auto ref = session->add_tensors(*image, {.recipients = 1, .id = published, .version = v});
        if (!ref) return;
        if (session->serve([&](const auto& s) { return s.status_of(*ref)->acquired > 0; }, 2s))
          (void)session->serve(until_settled(*ref));
      }).detach();
    }
  }
  template <class To>
  static void pull(std::uint16_t port, To& to) {
    over_tcp::pull(port, to);
  }
};

/// Throws away every datagram that comes.
void sink_of_datagrams(int to) {
  auto link = udp_link::open("127.0.0.1:0");
  if (!link) ::_exit(1);
  tell(to, link->port());
  std::vector<std::byte> piece(64 * 1024);
  for (;;) {
    while (::recv(link->native_handle(), piece.data(), piece.size(), MSG_DONTWAIT) > 0) continue;
    pollfd one{link->native_handle(), POLLIN, 0};
    ::poll(&one, 1, -1);
  }
}

/// Accepts every connection and throws away what comes.
void sink(int to) {
  auto listener = tcp_listener::open("127.0.0.1:0");
  if (!listener) ::_exit(1);
  tell(to, listener->port());
  std::vector<posix_stream> streams;
  std::vector<pollfd> all;
  std::vector<std::byte> piece(64 * 1024);
  for (;;) {
    all.assign(1, {listener->native_handle(), POLLIN, 0});
    for (const auto& s : streams) all.push_back({s.native_handle(), POLLIN, 0});
    ::poll(all.data(), all.size(), -1);
    for (std::size_t i = all.size() - 1; i > 0; --i) {
      if (all[i].revents == 0) continue;
      const std::array<std::span<std::byte>, 1> in{piece};
      if (const auto s = streams[i - 1].read_some(in).status; s == io_status::closed || s == io_status::failed)
        streams.erase(streams.begin() + static_cast<std::ptrdiff_t>(i - 1));
    }
    if (all[0].revents == 0) continue;
    while (auto s = listener->accept()) streams.push_back(std::move(*s));
  }
}

/// Takes any image, no faster than it is told to.
struct paced {
  static constexpr bool irrevocable = false;
  std::atomic<std::uint64_t>* all;
  double bytes_per_second;  // 0: as fast as it comes
  bench::clock::time_point start = bench::clock::now();
  std::uint64_t mine = 0;
  std::vector<std::byte> room = std::vector<std::byte>(1 << 20);

  std::uint64_t fingerprint() const noexcept { return 0; }
  const image_schema* schema() const noexcept { return nullptr; }
  result<void> begin(const description&) noexcept { return {}; }
  prepared prepare(std::uint64_t, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(length, room.size()));
    out[0] = {room.data(), n};
    return {1, n};
  }
  result<void> commit(std::uint64_t, std::span<const std::byte> bytes) noexcept {
    mine += bytes.size();
    *all += bytes.size();
    return result<void>{};
  }
  result<void> chunk(std::uint64_t, std::uint64_t) noexcept {
    if (bytes_per_second > 0)
      std::this_thread::sleep_until(start +
                                    std::chrono::duration_cast<bench::clock::duration>(
                                        std::chrono::duration<double>(static_cast<double>(mine) / bytes_per_second)));
    return {};
  }
  result<void> finish(const receipt&) noexcept { return {}; }
  void abandon(const error&) noexcept {}
};

/// Bytes a second that honest recipients get in `seconds`, of at most `pace` together.
template <class Driver>
void receive(int to, std::uint16_t port, double pace, double seconds) {
  std::atomic<std::uint64_t> bytes{0};
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < recipients; ++i)
    threads.emplace_back([&, port, pace] {
      paced to_nowhere{&bytes, pace / recipients};
      for (;;) Driver::pull(port, to_nowhere);
    });
  std::this_thread::sleep_for(300ms);
  const auto start = bench::clock::now();
  const std::uint64_t before = bytes;
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  tell(to, static_cast<double>(bytes - before) / bench::seconds_since(start));
  ::_exit(0);  // the recipients are in the middle of something
}

/// A connection of a stranger of the tests' list.
class strange_connection {
 public:
  explicit strange_connection(std::uint16_t port) {
    auto s = tcp_connect(local(port), bench::clock::now() + 5s);
    if (s) stream_ = std::move(*s);
  }
  /// Of what fits the socket's buffer, all.
  bool say(std::span<const std::byte> bytes) {
    const std::array<std::span<const std::byte>, 1> out{bytes};
    return stream_.write_some(out).bytes == bytes.size();
  }
  /// Whether the other end has ended it. Throws away all that has arrived.
  bool ended() {
    static std::vector<std::byte> piece(64 * 1024);
    const std::array<std::span<std::byte>, 1> in{piece};
    for (;;) {
      const auto io = stream_.read_some(in);
      if (is_end(io.status)) return true;
      if (io.bytes == 0) return false;
    }
  }
  void reset() {
    const linger now{1, 0};
    (void)::setsockopt(stream_.native_handle(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    stream_ = posix_stream();
  }
  posix_stream& stream() { return stream_; }

 private:
  posix_stream stream_;
};

/// A connection of an attacker that does not wait for anything.
class hostile_connection {
 public:
  explicit hostile_connection(std::uint16_t port) : port_(port) { renew(); }
  void renew() {
    auto s = tcp_connect(local(port_), bench::clock::now() + 5s);
    stream_ = s ? std::move(*s) : posix_stream();
  }
  /// A frame is never cut: what did not fit goes before anything else, and until then nothing else is said.
  void say(std::span<const std::byte> bytes) {
    if (stream_.native_handle() < 0) renew();
    if (stream_.native_handle() < 0) return;
    if (!rest_.empty()) rest_.erase(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(write(rest_)));
    if (!rest_.empty()) return;
    const std::size_t n = write(bytes);
    rest_.assign(bytes.begin() + static_cast<std::ptrdiff_t>(n), bytes.end());
  }
  /// Throws away what has come.
  void hear() {
    const std::array<std::span<std::byte>, 1> in{piece_};
    for (int i = 0; i < 16 && stream_.native_handle() >= 0; ++i) {
      const auto io = stream_.read_some(in);
      if (io.status == io_status::closed || io.status == io_status::failed) {
        stream_ = posix_stream();
        rest_.clear();
      }
      if (io.bytes == 0) return;
    }
  }

 private:
  std::size_t write(std::span<const std::byte> bytes) {
    const std::array<std::span<const std::byte>, 1> out{bytes};
    const auto io = stream_.write_some(out);
    if (io.status == io_status::closed || io.status == io_status::failed) {
      stream_ = posix_stream();
      rest_.clear();
    }
    return io.bytes;
  }
  static inline std::vector<std::byte> piece_ = std::vector<std::byte>(64 * 1024);
  std::uint16_t port_;
  posix_stream stream_;
  std::vector<std::byte> rest_;
};

void put(std::vector<std::byte>& to, const frame& m) {
  alignas(8) std::array<std::byte, 70'000> bytes;
  const auto n = word_framing::encode(m, bytes);
  if (!n) ::_exit(1);
  to.insert(to.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(*n));
}
frame request(frame_kind kind, std::uint32_t id, std::uint64_t offset = 0, std::uint32_t length = 0) {
  frame m;
  m.kind = kind;
  m.id = id;
  m.ref = published;
  m.offset = offset;
  m.length = length;
  return m;
}

/// Attackers over datagrams: plain sockets, and a raw one that says any address is its own.
struct hostile_sockets {
  hostile_sockets(std::uint16_t owner, std::size_t count) : port(owner) {
    for (std::size_t i = 0; i < count; ++i) {
      plain.push_back(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      const sockaddr_in to = address(port);
      if (plain.back() < 0 || ::connect(plain.back(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
        ::_exit(1);
    }
  }
  static sockaddr_in address(std::uint16_t port) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(port);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
  }
  static int open_raw() { return ::socket(AF_INET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_RAW); }
  /// A datagram of another's.
  void forge(std::uint16_t from, std::uint16_t to, std::span<const std::byte> body) {
    std::array<std::byte, 1500> packet{};
    const std::size_t length = sizeof(iphdr) + sizeof(udphdr) + body.size();
    iphdr ip{};
    ip.version = 4, ip.ihl = 5, ip.ttl = 64, ip.protocol = IPPROTO_UDP;
    ip.tot_len = htons(static_cast<std::uint16_t>(length));
    ip.saddr = ip.daddr = htonl(INADDR_LOOPBACK);
    udphdr udp{};
    udp.source = htons(from), udp.dest = htons(to);
    udp.len = htons(static_cast<std::uint16_t>(sizeof udp + body.size()));
    std::memcpy(packet.data(), &ip, sizeof ip);
    std::memcpy(packet.data() + sizeof ip, &udp, sizeof udp);
    std::memcpy(packet.data() + sizeof ip + sizeof udp, body.data(), body.size());
    const sockaddr_in where = address(to);
    (void)!::sendto(raw, packet.data(), length, 0, reinterpret_cast<const sockaddr*>(&where), sizeof where);
  }
  /// The ports of those that speak with the owner, as the system lists them.
  void find_recipients() {
    recipients.clear();
    std::FILE* const list = std::fopen("/proc/net/udp", "r");
    char line[256];
    while (list != nullptr && std::fgets(line, sizeof line, list) != nullptr) {
      unsigned slot, here, my_port, there, port_there;
      const bool read = std::sscanf(line, " %u: %x:%x %x:%x", &slot, &here, &my_port, &there, &port_there) == 5;
      if (read && port_there == port) recipients.push_back(static_cast<std::uint16_t>(my_port));
    }
    if (list != nullptr) std::fclose(list);
  }

  std::uint16_t port;
  int raw = open_raw();
  std::vector<int> plain;
  std::vector<std::uint16_t> recipients;
};

/// Each acts once in a tick, over one of the two links.
struct attack {
  const char* name;
  std::size_t connections;
  void (*act)(std::vector<hostile_connection>& all, std::uint64_t number, std::mt19937_64& random) = nullptr;
  void (*say)(hostile_sockets& all, std::uint64_t number, std::mt19937_64& random) = nullptr;
};

void flood_of_chunk_digests(std::vector<hostile_connection>& all, std::uint64_t number, std::mt19937_64& random) {
  hostile_connection& c = all[number % all.size()];  // each lives for a few ticks
  c.renew();
  std::vector<std::byte> bytes;
  put(bytes, request(frame_kind::describe, 1));
  for (std::uint32_t i = 2; i < 12; ++i) {
    frame m = request(frame_kind::pull, i, random() % (48u << 20), 16u << 20);
    m.chunk_digest = digest_kind::xxh3_64;
    put(bytes, m);
  }
  c.say(bytes);
}
void storm_of_subsets(std::vector<hostile_connection>& all, std::uint64_t number, std::mt19937_64& random) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < tensors && names.size() < 100; ++i)
    if (random() % 2 == 0) names.push_back(tensor_name(i));
  const std::vector<std::string_view> views(names.begin(), names.end());
  frame m = request(frame_kind::locate, static_cast<std::uint32_t>(number));
  m.names = views;
  std::vector<std::byte> bytes;
  put(bytes, m);
  for (auto& c : all) {
    c.hear();
    c.say(bytes);
  }
}
void storm_of_describes(std::vector<hostile_connection>& all, std::uint64_t number, std::mt19937_64&) {
  std::vector<std::byte> bytes;
  for (std::uint32_t i = 0; i < 50; ++i)
    put(bytes, request(frame_kind::describe, static_cast<std::uint32_t>(number) * 50 + i));
  for (auto& c : all) {
    c.hear();
    c.say(bytes);
  }
}
void one_byte_pulls(std::vector<hostile_connection>& all, std::uint64_t number, std::mt19937_64& random) {
  std::vector<std::byte> bytes;
  if (number == 0) put(bytes, request(frame_kind::describe, 0));
  for (std::uint32_t i = 1; i <= 50; ++i)
    put(bytes,
        // of the header, most of it
        request(frame_kind::pull, static_cast<std::uint32_t>(number) * 50 + i, random() % (32 * 1024), 1));
  for (auto& c : all) {
    c.hear();
    c.say(bytes);
  }
}
void dribbled_messages(std::vector<hostile_connection>& all, std::uint64_t number, std::mt19937_64&) {
  static const std::vector<std::byte> bytes = [] {
    const std::vector<std::byte> body(60 * 1024);
    frame m;
    m.kind = frame_kind::application;
    m.application = 7;
    m.body = body;
    std::vector<std::byte> all_of_it;
    put(all_of_it, m);
    return all_of_it;
  }();
  // so much at first that a buffer for the message is needed, then a byte at a time
  for (auto& c : all) {
    c.hear();
    c.say(number == 0 ? std::span(bytes).first(8 * 1024)
                      : std::span(bytes).subspan(8 * 1024 + number % (40 * 1024), 1));
  }
}
void slow_readers(std::vector<hostile_connection>& all, std::uint64_t number, std::mt19937_64&) {
  if (number != 0) return;  // they never read
  std::vector<std::byte> bytes;
  put(bytes, request(frame_kind::describe, 1));
  for (std::uint32_t i = 2; i < 9; ++i) put(bytes, request(frame_kind::pull, i, 0, 16u << 20));
  for (auto& c : all) c.say(bytes);
}
void silence(std::vector<hostile_connection>& all, std::uint64_t, std::mt19937_64&) {
  for (auto& c : all) c.hear();
}

void strangers_that_come_and_go(std::vector<hostile_connection>& all, std::uint64_t, std::mt19937_64&) {
  for (auto& c : all) c.renew();
}

/// Requests, halves of requests, and bytes that are none.
std::vector<std::byte> some_datagram(std::mt19937_64& random) {
  std::vector<std::byte> bytes(cookie_bytes);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  frame m = request(random() % 2 == 0 ? frame_kind::describe : frame_kind::pull, static_cast<std::uint32_t>(random()),
                    0, 16 * 1024);
  m.recipient = {random()};
  put(bytes, m);
  if (random() % 4 == 0) bytes.resize(bytes.size() / 2);
  if (random() % 4 == 0)
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}
constexpr int datagrams_in_a_tick = 64;
void datagrams_of_strangers(hostile_sockets& all, std::uint64_t number, std::mt19937_64& random) {
  for (int i = 0; i < datagrams_in_a_tick; ++i) {
    const auto bytes = some_datagram(random);
    (void)!::send(all.plain[(number + static_cast<std::uint64_t>(i)) % all.plain.size()], bytes.data(), bytes.size(),
                  0);
  }
}
void forged_datagrams(hostile_sockets& all, std::uint64_t number, std::mt19937_64& random) {
  if (number % 20 == 0) all.find_recipients();
  if (all.recipients.empty()) return;
  for (int i = 0; i < datagrams_in_a_tick; ++i) {
    const std::uint16_t recipient = all.recipients[random() % all.recipients.size()];
    const auto bytes = some_datagram(random);
    if (i % 2 == 0) all.forge(recipient, all.port, bytes);
    else all.forge(all.port, recipient, bytes);
  }
}

constexpr attack attacks[]{{"chunk-digest floods", 16, flood_of_chunk_digests},
                           {"subset storms", 8, storm_of_subsets},
                           {"describe storms", 8, storm_of_describes},
                           {"one-byte pulls", 8, one_byte_pulls},
                           {"message dribblers", 64, dribbled_messages},
                           {"slow readers", 32, slow_readers},
                           {"1,000 idle connections", 1000, silence},
                           {"strangers that come and go", 16, strangers_that_come_and_go}};
constexpr attack attacks_with_datagrams[]{{"udp: datagrams of strangers", 64, nullptr, datagrams_of_strangers},
                                          {"udp: forged datagrams", 1, nullptr, forged_datagrams}};

process begin(const attack& a, std::uint16_t port) {
  process p([&](int to) {
    if (::nice(19) == -1 && errno != 0) ::_exit(1);
    std::mt19937_64 random(7);
    std::vector<hostile_connection> all;
    for (std::size_t i = 0; a.act != nullptr && i < a.connections; ++i) all.emplace_back(port);
    std::optional<hostile_sockets> sockets;
    if (a.say != nullptr) sockets.emplace(port, a.connections);
    tell(to, 'b');
    auto next = bench::clock::now();
    for (std::uint64_t number = 0;; ++number) {
      if (a.act != nullptr) a.act(all, number, random);
      else a.say(*sockets, number, random);
      std::this_thread::sleep_until(next += tick);
      next = std::max(next, bench::clock::now() - 10 * tick);  // what the machine had no time for is not made up for
    }
  });
  (void)p.value<char>();
  return p;
}

/// As many of them as a host has in its tables of tests, and many more.
process begin(const test::stranger_habit& habit, std::uint16_t port) {
  process p([&](int to) {
    if (::nice(19) == -1 && errno != 0) ::_exit(1);
    test::crowd all([port] { return strange_connection(port); }, habit, 64);
    all.act();
    tell(to, 'b');
    for (;; std::this_thread::sleep_for(4 * tick)) all.act();
  });
  (void)p.value<char>();
  return p;
}

template <class Driver>
double honest_rate(std::uint16_t port, double pace, double seconds) {
  process p([&](int to) { receive<Driver>(to, port, pace, seconds); });
  return p.value<double>();
}
/// The pace of recipients: half of what they get alone and unpaced.
template <class Driver>
double pace_of(const char* over, double seconds) {
  std::vector<double> alone;
  for (int i = 0; i < 3; ++i) {
    process owner([](int to) { Driver::own(to); });
    alone.push_back(honest_rate<Driver>(owner.value<std::uint16_t>(), 0, seconds / 2));
  }
  const double pace = bench::summarise(alone).median / 2;
  std::printf("{\"alone\": %.0f, \"pace\": %.0f, \"over\": \"%s\"}\n", 2 * pace, pace, over);
  std::fflush(stdout);
  return pace;
}
void print_row(const std::string& name, const std::vector<double>& quiet, const std::vector<double>& beside) {
  const auto without = bench::summarise(quiet), attacked = bench::summarise(beside);
  std::printf(
      "{\"attack\": \"%s\", \"without\": %.0f, \"beside the attack\": %.0f, \"least\": %.0f, \"most\": %.0f, \"percent\": %.1f}\n",
      name.c_str(), without.median, attacked.median, attacked.minimum, attacked.maximum,
      100 * attacked.median / without.median);
  std::fflush(stdout);
}

/// Measures each attack on owners of one link, and all of them together.
template <class Driver>
void measure(const char* over, std::span<const attack> rows, void (*take)(int), const char* all, double seconds,
             int rounds, std::string_view only) {
  const auto wanted = [&](std::string_view name) { return name.find(only) != std::string_view::npos; };
  if (!std::ranges::any_of(rows, [&](const attack& a) { return wanted(a.name); }) && !wanted(all)) return;
  process harmless([&](int to) { take(to); });
  const auto other = harmless.value<std::uint16_t>();
  const double pace = pace_of<Driver>(over, seconds);

  // an owner of its own each time, which owes nothing to the attackers before
  const auto beside = [&](std::span<const attack> some, bool attacked) {
    process owner([](int to) { Driver::own(to); });
    const auto port = owner.value<std::uint16_t>();
    std::vector<process> attackers;
    for (const attack& a : some) attackers.push_back(begin(a, attacked ? port : other));
    return honest_rate<Driver>(port, pace, seconds);
  };
  const auto row = [&](const char* name, std::span<const attack> some) {
    if (!wanted(name)) return;
    std::vector<double> with_sink, with_owner;
    for (int i = 0; i < rounds; ++i) {
      with_sink.push_back(beside(some, false));
      with_owner.push_back(beside(some, true));
    }
    print_row(name, with_sink, with_owner);
  };
  for (const attack& a : rows) row(a.name, {&a, 1});
  row(all, rows);
}

/// Measures each stranger of the list at owners of one driver.
template <class Driver>
void measure_strangers(const std::string& over, double seconds, int rounds, std::string_view only) {
  auto habits = test::stranger_habits();
  std::erase_if(habits, [&](const auto& h) { return (over + ": " + h.name).find(only) == std::string::npos; });
  if (habits.empty()) return;
  const double pace = pace_of<Driver>(over.c_str(), seconds);
  std::vector<double> alone;
  std::vector<std::vector<double>> beside(habits.size());
  for (int i = 0; i < rounds; ++i)
    for (std::size_t k = 0; k <= habits.size(); ++k) {
      process owner([](int to) { Driver::own(to); });
      const auto port = owner.value<std::uint16_t>();
      std::optional<process> strangers;
      if (k > 0) strangers.emplace(begin(habits[k - 1], port));
      (k > 0 ? beside[k - 1] : alone).push_back(honest_rate<Driver>(port, pace, seconds));
    }
  for (std::size_t k = 0; k < habits.size(); ++k) print_row(over + ": " + habits[k].name, alone, beside[k]);
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1.5;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 3;
  const std::string only = argc > 3 ? argv[3] : "";
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  ::signal(SIGPIPE, SIG_IGN);

  measure<over_tcp>("TCP", attacks, sink, "all together", seconds, rounds, only);
  const int raw = hostile_sockets::open_raw();
  if (raw < 0) std::fprintf(stderr, "bench_hostile: no raw socket, so no datagram is forged (that needs root)\n");
  else ::close(raw);
  measure<over_udp>("UDP", std::span(attacks_with_datagrams).first(raw < 0 ? 1 : 2), sink_of_datagrams,
                    "udp: all together", seconds, rounds, only);
  measure_strangers<over_tcp>("TCP", seconds, rounds, only);
  measure_strangers<over_tls>("TLS", seconds, rounds, only);
  measure_strangers<over_http>("HTTP", seconds, rounds, only);
  measure_strangers<over_replica>("replica", seconds, rounds, only);
  measure_strangers<with_sessions>("sessions", seconds, rounds, only);
}
