// What the tests of all transports share: models, and an owner that runs on a thread of its own.
#pragma once

#include "support/process_entries.hpp"
#include "support/random.hpp"
#include "support/results.hpp"
#include "support/streams.hpp"
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
using tensorpull::operator""_KiB;
using tensorpull::operator""_MiB;
using std::chrono::steady_clock;

/// Where a server of this machine listens: on a port that is free.
inline constexpr std::string_view any_port = "127.0.0.1:0";

/// Structs in chunks of 64 KiB, and the transport and what else there is.
template <class Model, class... More>
using raw_net = tp::pipeline<tp::raw_tensors<Model>, tp::fixed_bytes<64_KiB>, More...>;

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

/// What is pulled from there has these bytes.
template <class Net, class Where, class Model>
testing::AssertionResult arrives(const Where& where, const tp::reference& ref, const Model& expected,
                                 const tp::pull_options& options = {}) {
  const auto mine = blank<Model>();
  const auto done = Net::download_tensors(where, ref, *mine, options);
  if (done && !same(*mine, expected)) return testing::AssertionFailure() << "other bytes ";
  return succeeded(done);
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

/// An owner of one model, which serves.
template <class Net, class Model = mlp>
struct owner_at_work {
  explicit owner_at_work(const tp::publish_options& how = {}, std::size_t threads = 1)
      : owner_at_work(Net::downloader::open(), how, threads) {}
  explicit owner_at_work(tp::result<typename Net::downloader> opened, const tp::publish_options& how = {},
                         std::size_t threads = 1)
      : owner(std::move(opened)), ref(*owner->add_tensors(*source, how)), server(*owner, threads) {}

  const std::unique_ptr<Model> source = random_model<Model>(1);
  tp::result<typename Net::downloader> owner;
  tp::reference ref;
  serving server;
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
