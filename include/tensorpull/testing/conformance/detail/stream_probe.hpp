// Helpers of the checks of a byte stream: new connections, time, and moving bytes with a time limit.
#pragma once

#include <tensorpull/testing/conformance/conformance_options.hpp>
#include <tensorpull/testing/conformance/conformance_report.hpp>
#include <tensorpull/testing/seeded_random.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

namespace tensorpull::testing::detail {

/// `Connect`: a stream_factory.
template <stream_factory Connect>
class stream_probe {
 public:
  using pair = typename std::invoke_result_t<Connect&>::value_type;
  using stream = typename pair::stream;

  stream_probe(Connect& connect, const conformance_options& o, conformance_report& r) noexcept
      : options(o), report(r), connect_(connect) {}

  std::uint64_t now_us() {
    if constexpr (requires { connect_.now_us(); }) return connect_.now_us();
    else
      return static_cast<std::uint64_t>(
          std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
              .count());
  }
  /// A new connection; nothing if it cannot be made, and then the current check has failed.
  std::optional<pair> connect() {
    auto made = connect_();
    if (made) return std::move(*made);
    report.fail("no connection: %s", to_string(made.error().code).data());
    return std::nullopt;
  }

  /// Writes all bytes. Returns how many were taken before the time or the stream ended.
  std::size_t send(stream& s, std::span<const std::byte> bytes) {
    std::size_t done = 0;
    return with_patience(s, false,
                         [&] {
                           const std::span<const std::byte> rest = bytes.subspan(done);
                           const io_result io = s.write_some({&rest, 1});
                           done += std::min(io.bytes, rest.size());
                           return done == bytes.size() || is_end(io.status) ? ended : io.bytes > 0 ? moved : nothing;
                         }),
           done;
  }
  /// Reads up to `most` bytes, fewer if the time or the stream ends first; `end` says which.
  std::vector<std::byte> receive(stream& s, std::size_t most, io_status* end = nullptr) {
    std::vector<std::byte> got(most);
    std::size_t done = 0;
    io_status last = io_status::would_block;
    with_patience(s, true, [&] {
      const std::span<std::byte> rest = std::span(got).subspan(done);
      const io_result io = s.read_some({&rest, 1});
      last = io.status;
      done += std::min(io.bytes, rest.size());
      return done == most || is_end(io.status) ? ended : io.bytes > 0 ? moved : nothing;
    });
    if (end != nullptr) *end = last;
    got.resize(done);
    return got;
  }
  /// Waits until bytes that were sent have arrived, without reading them: for checks of a stream that has bytes to
  /// read.
  void let_arrive(stream& s) {
    for (int i = 0; i < 3; ++i) s.wait(true, false, std::chrono::milliseconds(10));
  }

  std::vector<std::byte> some_bytes(std::size_t n) {
    std::vector<std::byte> b(n);
    random_.fill(b);
    return b;
  }
  /// The shortest of five runs, in microseconds.
  template <class F>
  std::uint64_t shortest(F f) {
    std::uint64_t least = ~std::uint64_t{0};
    for (int i = 0; i < 5; ++i) {
      const std::uint64_t begin = now_us();
      f();
      least = std::min(least, now_us() - begin);
    }
    return least;
  }
  std::uint64_t prompt_us() const noexcept { return static_cast<std::uint64_t>(options.prompt.count()) * 1000; }
  std::uint64_t patience_us() const noexcept { return static_cast<std::uint64_t>(options.patience.count()) * 1000; }

  const conformance_options& options;
  conformance_report& report;

 private:
  enum progress {
    nothing,
    moved,
    ended,
  };
  template <class F>
  void with_patience(stream& s, bool reading, F step) {
    for (std::uint64_t begin = now_us();;) {
      const progress p = step();
      if (p == ended) return;
      if (p == moved) begin = now_us();
      else if (now_us() - begin > patience_us()) return;
      else
        s.wait(reading, !reading, std::chrono::milliseconds(1));  // only to let time pass; other checks look at its
                                                                     // result
    }
  }

  Connect& connect_;
  seeded_random random_{1};
};

}  // namespace tensorpull::testing::detail
