// Helpers of the checks of a byte stream: moving bytes with a time limit.
#pragma once

#include <tensorpull/testing/conformance/detail/link_probe.hpp>

#include <array>
#include <vector>

namespace tensorpull::testing::detail {

/// `Connect`: a stream_factory.
template <stream_factory Connect>
class stream_probe : public link_probe<Connect> {
  using base = link_probe<Connect>;

 public:
  using pair = typename base::pair;
  using stream = typename pair::stream;
  using link_end = stream;
  using base::base, base::now_us, base::patience_us;

  static io_result read(stream& s, std::span<std::byte> into) noexcept { return s.read_some({&into, 1}); }
  static io_result write(stream& s, std::span<const std::byte> from) noexcept { return s.write_some({&from, 1}); }
  /// Reads a few bytes, if there are any.
  static io_result take(stream& s) noexcept {
    std::array<std::byte, 8> memory;
    return read(s, memory);
  }

  /// Writes all bytes. Returns how many were taken before the time or the stream ended.
  std::size_t send(stream& s, std::span<const std::byte> bytes) {
    std::size_t done = 0;
    with_patience(s, false, [&] {
      const auto rest = bytes.subspan(done);
      const io_result io = write(s, rest);
      done += std::min(io.bytes, rest.size());
      if (done == bytes.size() || is_end(io.status)) return ended;
      return io.bytes > 0 ? moved : nothing;
    });
    return done;
  }
  /// Reads up to `most` bytes, fewer if the time or the stream ends first; `end` is which.
  std::vector<std::byte> receive(stream& s, std::size_t most, io_status* end = nullptr) {
    std::vector<std::byte> got(most);
    std::size_t done = 0;
    io_status last = io_status::would_block;
    with_patience(s, true, [&] {
      const auto rest = std::span(got).subspan(done);
      const io_result io = read(s, rest);
      last = io.status;
      done += std::min(io.bytes, rest.size());
      if (done == most || is_end(io.status)) return ended;
      return io.bytes > 0 ? moved : nothing;
    });
    if (end != nullptr) *end = last;
    got.resize(done);
    return got;
  }
  /// Waits until bytes that were sent have arrived, without reading them: for checks of a stream that has bytes to
  /// read.
  void let_arrive(stream& s) {
    for (int i = 0; i < 3; ++i) s.wait(true, false, 10ms);
  }
  /// Sends 3 bytes from left to right. False: waiting does not tell that they arrive.
  bool let_arrive(pair& c) {
    send(c.left, some_bytes(3));
    for (int i = 0; i < 5; ++i)  // a signal may end a wait
      if (c.right.wait(true, false, 60ms).read) return true;
    return false;
  }

  std::vector<std::byte> some_bytes(std::size_t n) {
    std::vector<std::byte> b(n);
    random_.fill(b);
    return b;
  }

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
        // only to let time pass; other checks look at its result
        s.wait(reading, !reading, 1ms);
    }
  }

  seeded_random random_{1};
};

}  // namespace tensorpull::testing::detail
