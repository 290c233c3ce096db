// What the tests of serial lines share: pipelines, and a transfer over a line that is noisy.
#pragma once

#include "sample_models.hpp"
#include "support/clocks.hpp"
#include "support/noisy_line.hpp"

#include <tensorpull/transports/over/serial/serial.hpp>

namespace test {

/// 8 KB: 0.8 s at 115,200 baud.
struct small {
  float w[2000];
  std::int64_t step;
};
template <class Model, std::uint64_t Chunk = 512>
using serial_net = tp::pipeline<tp::raw_tensors<Model>, tp::fixed_bytes<Chunk>, tp::basic_serial<Chunk + 128>>;

/// One pull over a line, with an owner at its right end that runs on a thread of its own.
template <class Model, std::uint64_t Chunk = 512>
class over_line {
 public:
  using net = serial_net<Model, Chunk>;

  explicit over_line(const line_noise& noise = {}, std::uint64_t rate = 0)
      : line(noise, rate), source(random_model<Model>(noise.seed)),
        owner(*net::downloader::open({.listen = line.right()})), ref(*owner.add_tensors(*source, {.recipients = 1})),
        serving_(owner) {}
  ~over_line() { serving_.stop(); }

  tp::result<tp::receipt> pull(const tp::pull_options& options = {}) {
    return net::download_tensors(line.left(), ref, *mine, options);
  }
  /// A pull that completes, and whose bytes are right.
  void expect_completed(const tp::pull_options& options = {}) {
    const auto done = pull(options);
    ASSERT_TRUE(confirmed(done));
    EXPECT_TRUE(same(*mine, *source));
  }

  noisy_line line;
  std::unique_ptr<Model> source, mine = blank<Model>();
  typename net::downloader owner;
  tp::reference ref;

 private:
  serving serving_;
  fast_clock fast_{4};
};

}  // namespace test

BOOST_HANA_ADAPT_STRUCT(test::small, w, step);
