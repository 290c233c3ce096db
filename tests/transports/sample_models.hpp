// What the tests of all transports share: models, and an owner that runs on a thread of its own.
#pragma once

#include "support/process_entries.hpp"
#include "support/random.hpp"
#include "support/threads.hpp"
#include "support/waiting.hpp"

#include <tensorpull/tensorpull.hpp>

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <stop_token>
#include <string>

namespace test {

namespace tp = tensorpull;
using namespace std::chrono_literals;
using tensorpull::operator""_KiB;
using tensorpull::operator""_MiB;

/// 402,928 bytes without padding, with a scalar and a nested struct.
struct dense {
  float w[128][784];
  float b[128];
};
struct mlp {
  dense hidden;
  std::int64_t step;
  std::uint8_t mask[1000];
};
/// 12 MiB: more than a socket's buffers hold.
struct large {
  float w[3][1024][1024];
};
/// Less than one chunk.
struct tiny {
  float w[100];
};

}  // namespace test

BOOST_HANA_ADAPT_STRUCT(test::dense, w, b);
BOOST_HANA_ADAPT_STRUCT(test::mlp, hidden, step, mask);
BOOST_HANA_ADAPT_STRUCT(test::large, w);
BOOST_HANA_ADAPT_STRUCT(test::tiny, w);

namespace test {

template <class Model>
std::unique_ptr<Model> blank() {
  return std::make_unique<Model>();
}
template <class Model>
std::unique_ptr<Model> random_model(std::uint64_t seed) {
  auto m = std::make_unique<Model>();
  generator(seed).fill(std::as_writable_bytes(std::span(m.get(), 1)));
  return m;
}
template <class Model>
bool same(const Model& a, const Model& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

inline std::string local(std::uint16_t port) { return "127.0.0.1:" + std::to_string(port); }

/// Runs an owner on a thread of its own. After stop() the owner may be asked for anything from the test's thread.
class serving {
 public:
  template <class Owner>
  explicit serving(Owner& owner, std::size_t threads = 1)
      : threads_(threads, [&owner](std::size_t, const std::stop_token& stop) { owner.run(stop); }) {}
  void stop() {
    threads_.request_stop();
    threads_.join();
  }

 private:
  joined_threads threads_;
};

/// Runs an owner on this thread until something holds of it. If it does not, the test fails with the words of `what`.
template <class Owner, class Holds>
bool runs_until(std::string_view what, Owner& owner, Holds holds) {
  if (holds()) return true;
  (void)owner.run([&](const auto&) { return holds(); }, within(ample_time));
  EXPECT_TRUE(holds()) << "an owner ran for " << ample_time.count() << " s until this: " << what;
  return holds();
}

}  // namespace test
