// A file of a web server beside curl, over loopback. The server is an owner of this library in a process of its own; a
// recipient is a process, too, that writes a new file. Arguments: MiB, rounds. Prints a JSON object for each case:
// GiB a second.
#include "image.hpp"
#include "measure.hpp"

#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/satellites/http/owner/http_owner.hpp>
#include <tensorpull/satellites/http/recipient/http_pull.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/tensor_list.hpp>

using namespace tensorpull;

namespace {

constexpr std::size_t chunk = 2_MiB;

template <class Integrity>
using by_http = pipeline<tensor_list, fixed_bytes<chunk>, http, Integrity>;

/// Runs it in a process of its own, and waits for that. False in it is the end of the benchmark.
template <class Run>
double in_a_process(Run run) {
  const pid_t process = ::fork();
  if (process == 0) ::_exit(run() ? 0 : 1);
  int status = 1;
  if (::waitpid(process, &status, 0) != process || status != 0) std::abort();
  return 0;
}

struct bench_case {
  std::string path, url, key, digest;

  double curl() const {
    (void)::unlink(path.c_str());
    const std::string field = "Authorization: Bearer " + key;
    return in_a_process([&] {
      return ::execlp("curl", "curl", "-sSf", "-H", field.c_str(), "-o", path.c_str(), url.c_str(), nullptr) == 0;
    });
  }
  template <class Integrity>
  double pull(std::uint32_t connections) const {
    (void)::unlink(path.c_str());
    return in_a_process([&] {
      auto file = safetensors_file::create(path, {.fsync = false});  // as curl
      if (!file) return false;
      const auto done = by_http<Integrity>::pull(
          http_address{.url = url, .digest = digest, .bearer = key, .connections = connections}, {}, *file);
      if (!done) std::fprintf(stderr, "%s\n", describe(done.error()).c_str());
      return done.has_value();
    });
  }
};

}  // namespace

int main(int count, char** arguments) {
  const std::size_t bytes = (count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 1024) << 20;
  const int rounds = count > 2 ? std::atoi(arguments[2]) : 9;
  bench::child owner([&](int pipe) {
    bench::image from(bytes);
    for (std::size_t i = 0; i < bytes; ++i) from.memory[i] = static_cast<std::byte>(i * 0x9e3779b97f4a7c15u >> 40);
    using net = pipeline<tensor_list, fixed_bytes<chunk>, http_only<tcp>>;
    auto open = net::downloader::open({.listen = "127.0.0.1:0"});
    if (!open) std::abort();
    const auto published = open->add_image(from.table.source());
    bench::write_value(pipe, open->port());
    bench::write_value(pipe, *published);
    open->run(stop_token{});
  });
  const auto port = owner.read<std::uint16_t>();
  const auto ref = owner.read<reference>();
  std::array<char, 24> version{};
  (void)std::snprintf(version.data(), version.size(), "%016llx", static_cast<unsigned long long>(ref.version));
  const std::string folder = std::getenv("TMPDIR") != nullptr ? std::getenv("TMPDIR") : "/tmp";
  const bench_case one{folder + "/tensorpull-http-" + std::to_string(::getpid()) + ".safetensors",
                       "http://127.0.0.1:" + std::to_string(port) + "/v1/model/" + version.data(),
                       std::string(to_digits(ref.id).data(), 32), "xxh3:" + std::string(version.data())};
  const auto results = bench::interleave(rounds,
                                         {{"curl", [&] { return one.curl(); }},
                                          {"http, no digest", [&] { return one.pull<unverified>(0); }},
                                          {"http, digest", [&] { return one.pull<image_digest>(0); }},
                                          {"http, digest, 4 connections", [&] { return one.pull<image_digest>(4); }}});
  (void)::unlink(one.path.c_str());
  const double gib = static_cast<double>(bytes) / static_cast<double>(1_GiB);
  for (const auto& r : results) {
    const auto s = bench::summarise(r.seconds);
    std::printf("{\"case\": \"%s\", \"rate\": %.4f, \"least\": %.4f, \"most\": %.4f}\n", r.name.c_str(), gib / s.median,
                gib / s.maximum, gib / s.minimum);
  }
}
