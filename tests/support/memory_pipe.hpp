// Two byte streams in memory, joined back to back, that take and give as little at a time as a test wants.
#pragma once

#include "random.hpp"
#include "words.hpp"

#include <tensorpull/links/byte_stream.hpp>

#include <algorithm>
#include <cstring>
#include <vector>

namespace test {

/// Bytes under way in one direction.
struct wire {
  byte_vector bytes;
  std::size_t begin = 0;
  std::size_t capacity = ~std::size_t{0};
  std::uint64_t carried = 0;

  std::size_t waiting() const noexcept { return bytes.size() - begin; }
  std::size_t room() const noexcept { return capacity - std::min(capacity, waiting()); }
  void put(const_byte_span in) {
    bytes.insert(bytes.end(), in.begin(), in.end());
    carried += in.size();
  }
  void take(std::byte* out, std::size_t n) noexcept {
    std::memcpy(out, bytes.data() + begin, n);
    begin += n;
    if (begin == bytes.size()) bytes.clear(), begin = 0;
    else if (begin > (1u << 20))
      bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(begin)), begin = 0;
  }
};

/// How many bytes one call moves: at most `most`; with a generator, a random number up to that.
struct cut {
  std::size_t most = ~std::size_t{0};
  generator* random = nullptr;
  std::size_t operator()() noexcept {
    return random != nullptr ? 1 + static_cast<std::size_t>(random->below(most)) : most;
  }
};

/// One end. Models byte_stream.
class pipe_end {
 public:
  pipe_end(wire& in, wire& out, cut reads, cut writes) noexcept
      : in_(&in), out_(&out), reads_(reads), writes_(writes) {}

  tensorpull::io_result read_some(std::span<const byte_span> spans) noexcept {
    std::size_t asked = 0, n = 0;
    for (const auto& s : spans) asked += s.size();
    // a socket that is asked for nothing gives nothing, which reads like the end of the stream
    if (asked == 0) return {tensorpull::io_status::closed, 0, 0};
    std::size_t left = std::min(reads_(), in_->waiting());
    for (const auto& s : spans) {
      const std::size_t k = std::min(s.size(), left);
      if (k > 0) in_->take(s.data(), k);
      left -= k;
      n += k;
    }
    if (n == 0 && closed_) return {tensorpull::io_status::closed, 0, 0};
    return {n > 0 ? tensorpull::io_status::ok : tensorpull::io_status::would_block, 0, n};
  }
  tensorpull::io_result write_some(std::span<const const_byte_span> spans) noexcept {
    std::size_t n = 0, left = std::min(writes_(), out_->room());
    for (const auto& s : spans) {
      const std::size_t k = std::min(s.size(), left);
      if (k > 0) out_->put(s.first(k));
      left -= k;
      n += k;
    }
    return {n > 0 ? tensorpull::io_status::ok : tensorpull::io_status::would_block, 0, n};
  }
  tensorpull::io_ready wait(bool read, bool write, std::chrono::milliseconds) noexcept { return {read, write}; }
  void close() noexcept { closed_ = true; }

 private:
  wire* in_;
  wire* out_;
  cut reads_, writes_;
  bool closed_ = false;
};

static_assert(tensorpull::byte_stream<pipe_end>);

}  // namespace test
