// The job that every program does: a sender that holds the model, a receiver that ends with all tensors in its own
// memory. The driver (bench/driver) starts both and speaks to them line by line on standard input and output; what it
// may say is in bench/reference.md.
#pragma once

#include "model.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <thread>
#include <utility>

#include "../../examples/jobs/federated/heap_count.hpp"

namespace bench {

using clock = std::chrono::steady_clock;
inline double seconds_since(clock::time_point start) {
  return std::chrono::duration<double>(clock::now() - start).count();
}

struct job {
  std::string role, address, shape = "uniform", variant, fresh;
  std::size_t bytes = std::size_t{1} << 30, tensors = 16, chunk = std::size_t{2} << 20, window = 4;
  std::size_t recipients = 1, destinations = 4, threads = 1, pulls = 1;

  std::vector<std::size_t> sizes() const { return tensor_sizes(shape, bytes, tensors); }
};

inline job read_job(int count, char** arguments) {
  job j;
  if (count > 1) j.role = arguments[1];
  for (int i = 2; i + 1 < count; i += 2) {
    const std::string_view name = arguments[i];
    const std::string value = arguments[i + 1];
    const auto number = [&] { return static_cast<std::size_t>(std::strtoull(value.c_str(), nullptr, 10)); };
    if (name == "--address") j.address = value;
    else if (name == "--model") j.shape = value;
    else if (name == "--variant") j.variant = value;
    else if (name == "--fresh") j.fresh = value;
    else if (name == "--bytes") j.bytes = number();
    else if (name == "--tensors") j.tensors = number();
    else if (name == "--chunk") j.chunk = number();
    else if (name == "--window") j.window = number();
    else if (name == "--recipients") j.recipients = number();
    else if (name == "--destinations") j.destinations = number();
    else if (name == "--threads") j.threads = number();
    else if (name == "--pulls") j.pulls = number();
    else j.role.clear();
  }
  return j;
}

[[noreturn]] inline void give_up(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::_Exit(1);
}
/// What a sender serves on, given by the system.
inline std::string loopback_address(std::uint16_t port) { return "127.0.0.1:" + std::to_string(port); }

namespace detail {
inline void tell_usage() {
  rusage u{};
  ::getrusage(RUSAGE_SELF, &u);
  const auto s = [](timeval t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  const auto allocations = static_cast<unsigned long long>(federated::live_heap().total_allocations);
  std::printf("done {\"cpu\": %.6f, \"allocations\": %llu}\n", s(u.ru_utime) + s(u.ru_stime), allocations);
}

template <class Receiver>
class recipients {
 public:
  explicit recipients(const job& j)
      : job_(j), sizes_(j.sizes()), times_(std::max<std::size_t>(1, j.pulls)),
        start_(static_cast<std::ptrdiff_t>(j.recipients + 1)), end_(static_cast<std::ptrdiff_t>(j.recipients + 1)) {
    if (j.fresh.empty())
      for (std::size_t i = 0; i < std::min(j.recipients, j.destinations); ++i)
        models_.emplace_back(std::make_unique<model>(sizes_))->clear();
    for (std::size_t i = 0; i < j.recipients; ++i) receivers_.push_back(std::make_unique<Receiver>(j));
    if (j.recipients > 1)
      for (std::size_t i = 0; i < j.recipients; ++i) threads_.emplace_back([this, i] { work(i); });
  }
  ~recipients() {
    leaving_ = true;
    if (!threads_.empty()) start_.arrive_and_wait();
    for (auto& t : threads_) t.join();
  }

  /// `pulls` times one after the other, of which the median is told: all recipients at the same time, the first tensor
  /// being that of the recipient that had it last.
  void go() {
    for (auto& t : times_) {
      once();
      t = {took_, first_.load()};
    }
    std::sort(times_.begin(), times_.end());
    const auto median = times_[times_.size() / 2];
    std::printf("done {\"seconds\": %.9f, \"first\": %.9f}\n", median.first, median.second);
  }
  void clear() {
    for (auto& m : models_) m->clear();
    std::printf("done {}\n");
  }
  void check() {
    bool good = true;
    for (auto& m : models_) good &= m->has_pattern();
    std::printf("done {\"good\": %s}\n", good ? "true" : "false");
  }

 private:
  void once() {
    if (!job_.fresh.empty()) models_.clear();
    first_ = 0;
    began_ = clock::now();
    if (!job_.fresh.empty())
      models_.push_back(std::make_unique<model>(sizes_, job_.fresh == "huge" ? pages::huge : pages::plain));
    if (threads_.empty()) {
      pull(0);
    } else {
      start_.arrive_and_wait();
      end_.arrive_and_wait();
    }
    took_ = seconds_since(began_);
  }
  void pull(std::size_t i) {
    const double took = std::chrono::duration<double>(receivers_[i]->pull(*models_[i % models_.size()]) - began_)
                            .count();
    double seen = first_;
    while (seen < took && !first_.compare_exchange_weak(seen, took)) {
    }
  }
  void work(std::size_t i) {
    for (;;) {
      start_.arrive_and_wait();
      if (leaving_) return;
      pull(i);
      end_.arrive_and_wait();
    }
  }

  const job& job_;
  std::vector<std::size_t> sizes_;
  // of the pulls of one go, kept so that the harness allocates nothing meanwhile
  std::vector<std::pair<double, double>> times_;
  std::barrier<> start_, end_;
  std::vector<std::unique_ptr<model>> models_;
  std::vector<std::unique_ptr<Receiver>> receivers_;
  std::vector<std::thread> threads_;
  clock::time_point began_{};
  double took_ = 0;
  std::atomic<double> first_{0};
  std::atomic<bool> leaving_{false};
};
}  // namespace detail

/// `Sender(job, model)`: serves on threads of its own once it is made; `address()`: what receivers are given.
/// `Receiver(job)`: connects; `pull(model&)` ends when all tensors are there and gives the time at which the first one
/// was.
template <class Sender, class Receiver>
int run_job(int count, char** arguments) {
  const job j = read_job(count, arguments);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::string line;
  if (j.role == "send") {
    model m(j.sizes());
    m.fill();
    Sender sender(j, m);
    std::printf("ready %s\n", sender.address().c_str());
    while (std::getline(std::cin, line)) {
      if (line == "usage") detail::tell_usage();
      else std::printf("done {\"address\": \"\"}\n");  // publish: it stays published
    }
    std::_Exit(0);  // nobody waits for connections that are still open
  }
  if (j.role == "receive") {
    detail::recipients<Receiver> all(j);
    std::printf("ready\n");
    while (std::getline(std::cin, line)) {
      if (line.starts_with("go")) all.go();
      else if (line == "clear") all.clear();
      else if (line == "check") all.check();
      else detail::tell_usage();
    }
    std::_Exit(0);
  }
  std::fprintf(
      stderr,
      "usage: %s send|receive [--address A] [--model uniform|mixed|perceptron] [--bytes N] [--tensors N] [--chunk N] [--window N]\n"
      "  [--recipients N] [--destinations N] [--threads N] [--pulls N] [--variant NAME] [--fresh plain|huge]\n",
      arguments[0]);
  return 2;
}

}  // namespace bench
