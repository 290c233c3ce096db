// One round of federated averaging with a large model: bench_fedavg chunks|native BYTES CLIENTS. A server and its
// clients, each a process; what each needed at its peak. Native: every frame is a whole image, so the model travels as
// images that fit one frame (512 MiB).
#include <tensorpull/consumers/average/weighted_average.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/tensor_list.hpp>
#include <tensorpull/transports/host/host.hpp>

#include "../examples/jobs/federated/process_stats.hpp"
#include "job/model.hpp"

#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

using namespace tensorpull;

static constexpr std::size_t tensors = 16;

struct wide_limits : default_limits {
  static constexpr std::uint64_t chunk_cap_bytes = max_payload_bytes;
  static constexpr std::size_t application_references = 16;
};
template <class Chunking>
using net = pipeline<tensor_list, Chunking, tcp, chunk_and_image_digest, wide_limits>;

template <class T>
static decltype(auto) must(T&& r) {
  if (!r) {
    std::fprintf(stderr, "%s\n", describe(r.error()).c_str());
    std::_Exit(1);
  }
  if constexpr (!std::is_same_v<std::decay_t<T>, result<void>>) return *std::forward<T>(r);
}

/// The tensors' memory, and the images that hold a part of them each.
struct parted_model {
  static std::size_t tensors_in_a_part(std::size_t bytes) {
    return std::max<std::size_t>(1, (max_payload_bytes - 4096) / (bytes / tensors));
  }
  explicit parted_model(std::size_t bytes) : all(bench::tensor_sizes("uniform", bytes, tensors)) {
    const std::size_t most = tensors_in_a_part(bytes);
    for (std::size_t i = 0; i < tensors; i += most) {
      std::vector<mutable_tensor_view> views;
      const std::uint64_t elements = bytes / tensors / 4;
      for (std::size_t k = i; k < std::min(i + most, tensors); ++k)
        views.push_back(
            {.name = all.name(k), .type = dtype::f32, .shape = {&elements, 1}, .data = all.tensor(k).data()});
      parts.push_back(must(dynamic_image::make(std::span<const mutable_tensor_view>(views))));
    }
  }
  std::span<float> values(std::size_t i) {
    return {reinterpret_cast<float*>(all.tensor(i).data()), all.tensor(i).size() / 4};
  }
  std::uint64_t longest_part() const {
    std::uint64_t most = 0;
    for (const auto& p : parts) most = std::max(most, p.schema().image_bytes);
    return most;
  }
  bench::model all;
  std::vector<dynamic_image> parts;
};

struct figures {
  double peak_mib, seconds;
  std::uint16_t port;
  bool good;
};
static double peak_mib() { return static_cast<double>(federated::stats_of_self()->peak_resident_bytes) / (1 << 20); }

template <class Chunking>
class server {
 public:
  using average_type = weighted_average<>;
  using host_type = typename net<Chunking>::template host<server, average_type::update>;
  using connection = typename host_type::connection;

  server(std::size_t bytes, std::size_t clients)
      : model_(bytes), clients_(clients),
        buffers_(must(
            chunk_buffers::make(Chunking::max_chunk_bytes != 0 ? Chunking::max_chunk_bytes : model_.longest_part()))),
        host_(io_, *this) {
    for (std::size_t i = 0; i < tensors; ++i)
      for (float& v : model_.values(i)) v = static_cast<float>(i);
    for (auto& p : model_.parts)
      averages_.push_back(must(average_type::make(p.destination(), buffers_, {.max_peers = clients})));
    next_part_.resize(clients);
    theirs_.resize(clients);
    port = must(host_.listen("127.0.0.1:0"));
  }

  /// Gives whether the new model is the mean of the updates.
  bool round() {
    for (const auto& p : model_.parts)
      ours_.push_back(must(host_.published().add_tensors(p, {.recipients = static_cast<std::uint32_t>(clients_)})));
    while (done_ < clients_) io_.run_one_for(std::chrono::milliseconds(50));
    for (const auto& r : ours_) (void)host_.published().withdraw(r);
    for (auto& a : averages_) must(a.finish());
    const float added = static_cast<float>(clients_ + 1) / 2;  // client k adds k
    bool good = true;
    for (std::size_t i = 0; i < tensors; ++i) {
      const auto v = model_.values(i);
      for (std::size_t k = 0; k < v.size(); k += 4099) good &= v[k] == static_cast<float>(i) + added;
    }
    return good;
  }

  void connected(connection&) {}
  void message(connection& c, const tensorpull::message& m) {
    if (m.references.empty()) {
      c.tag = joined_++;
      must(c.send(1, ours_, {}));
      return;
    }
    theirs_[c.tag].assign(m.references.begin(), m.references.end());
    pull_next(c);
  }
  void pulled(connection& c, const result<receipt>& outcome) {
    must(outcome);
    if (++next_part_[c.tag] < theirs_[c.tag].size()) return pull_next(c);
    ++done_;
    c.close();
  }
  void closed(connection&, const error&) {}

  std::uint16_t port = 0;

 private:
  void pull_next(connection& c) {
    const std::size_t part = next_part_[c.tag];
    must(c.pull(theirs_[c.tag][part], {}, averages_[part], 1.0, update_key{recipient_id{c.tag + 1}, 1}));
  }

  parted_model model_;
  std::size_t clients_, joined_ = 0, done_ = 0;
  chunk_buffers buffers_;
  std::vector<average_type> averages_;
  std::vector<reference> ours_;
  std::vector<std::size_t> next_part_;
  std::vector<std::vector<reference>> theirs_;
  event_loop io_;
  host_type host_;
};

template <class Chunking>
static void take_part(std::size_t bytes, std::size_t number, std::uint16_t port) {
  parted_model model(bytes);
  auto peer = must(net<Chunking>::session::connect("127.0.0.1:" + std::to_string(port)));
  must(peer.send(1, {}, {}));
  const auto task = must(peer.receive());
  const std::vector<reference> theirs(task.references.begin(), task.references.end());
  for (std::size_t p = 0; p < theirs.size(); ++p) must(peer.download_tensors(theirs[p], model.parts[p]));
  for (std::size_t i = 0; i < tensors; ++i)
    for (float& v : model.values(i)) v += static_cast<float>(number + 1);
  std::vector<reference> ours;
  for (const auto& p : model.parts) ours.push_back(must(peer.add_tensors(p, {.recipients = 1})));
  must(peer.send(1, ours, {}));
  must(peer.serve([&](const auto& s) {
    for (const auto& r : ours)
      if (!s.settled(r)) return false;
    return true;
  }));
}

template <class Chunking>
static int run(std::size_t bytes, std::size_t clients) {
  const auto child = [](auto work) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    if (const pid_t pid = ::fork(); pid < 0) {
      std::abort();
    } else if (pid == 0) {
      work(ends[1]);
      std::_Exit(0);
    }
    ::close(ends[1]);
    return ends[0];
  };
  const auto tell = [](int fd, figures f) {
    if (::write(fd, &f, sizeof f) != static_cast<ssize_t>(sizeof f)) std::_Exit(1);
  };
  const auto hear = [](int fd) {
    figures f{};
    if (::read(fd, &f, sizeof f) != static_cast<ssize_t>(sizeof f)) std::_Exit(1);
    return f;
  };
  const int from_server = child([&](int out) {
    server<Chunking> s(bytes, clients);
    const auto start = std::chrono::steady_clock::now();
    tell(out, {0, 0, s.port, false});
    const bool good = s.round();
    tell(out,
         {peak_mib(), std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), s.port, good});
  });
  const std::uint16_t port = hear(from_server).port;
  std::vector<int> from_clients;
  for (std::size_t i = 0; i < clients; ++i)
    from_clients.push_back(child([&](int out) {
      take_part<Chunking>(bytes, i, port);
      tell(out, {peak_mib(), 0, 0, true});
    }));
  double most = 0;
  for (const int fd : from_clients) most = std::max(most, hear(fd).peak_mib);
  const figures f = hear(from_server);
  while (::wait(nullptr) > 0) {
  }
  const double model = static_cast<double>(bytes) / (1 << 20);
  std::printf(
      "{\"server_mib\": %.1f, \"client_mib\": %.1f, \"seconds\": %.3f, \"server_least_mib\": %.1f, \"client_least_mib\": %.1f}\n",
      f.peak_mib, most, f.seconds, 2 * model, model);
  if (!f.good) std::fprintf(stderr, "the average is wrong\n");
  return f.good ? 0 : 1;
}

int main(int count, char** arguments) {
  const std::string mode = count == 4 ? arguments[1] : "";
  const std::size_t bytes = count == 4 ? std::strtoull(arguments[2], nullptr, 10) / (4 * tensors) * (4 * tensors) : 0;
  const std::size_t clients = count == 4 ? std::strtoull(arguments[3], nullptr, 10) : 0;
  if (bytes == 0 || clients == 0 || bytes / tensors > max_payload_bytes / 2 || (mode != "chunks" && mode != "native")) {
    std::fprintf(stderr, "usage: bench_fedavg chunks|native BYTES CLIENTS\n");
    return 2;
  }
  return mode == "native" ? run<whole>(bytes, clients) : run<fixed_bytes<2_MiB>>(bytes, clients);
}
