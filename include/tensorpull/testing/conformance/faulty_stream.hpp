// Adds faults to any byte stream: short reads and writes, calls that would block, an end in the middle of a frame,
// damaged frames. A transfer through it must still be right, or end with an error.
#pragma once

#include <tensorpull/links/byte_stream.hpp>
#include <tensorpull/testing/frame_faults.hpp>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace tensorpull::testing {

/// The faults of a stream. By default there are none.
struct stream_faults {
  std::size_t most_per_read = ~std::size_t{0};       ///< bytes that one read moves at most
  std::size_t most_per_write = ~std::size_t{0};      ///< bytes that one write moves at most
  /// calls that return would_block before each one that moves bytes; reads and writes are counted separately
  std::uint32_t blocked_calls = 0;
  std::uint64_t read_ends_after = ~std::uint64_t{0};  ///< bytes read after which both directions return `closed`
  std::uint64_t stall_after = ~std::uint64_t{0};  ///< bytes read after which `stalled_calls` reads return would_block
  std::uint32_t stalled_calls = 0;  ///< see stall_after
  std::array<frame_fault, 2> sent{};  ///< faults of frames that are written
};

/// A byte_stream over another one, which it owns. Allocates for frames that a fault holds back.
template <byte_stream S>
class faulty_stream {
 public:
  /// Takes over `inner`.
  faulty_stream(S inner, const stream_faults& f) : inner_(std::move(inner)), f_(f) {
    for (const frame_fault& x : f.sent)
      if (x.kind != frame_fault_kind::none) {
        frames_.arm(x);
        meddles_ = true;
      }
  }

  io_result read_some(scatter_list spans) noexcept {
    if (f_.read_ends_after == 0) return {io_status::closed, 0, 0};
    if (blocked(reads_) || stalled()) return {io_status::would_block, 0, 0};
    std::array<std::span<std::byte>, 32> fewer;
    const std::size_t n = limit<std::byte>(spans, fewer, std::min<std::uint64_t>(f_.most_per_read, f_.read_ends_after));
    const io_result io = inner_.read_some({fewer.data(), n});
    f_.read_ends_after -= f_.read_ends_after == ~std::uint64_t{0} ? 0 : io.bytes;
    read_ += io.bytes;
    return io;
  }
  io_result write_some(gather_list spans) noexcept {
    if (f_.read_ends_after == 0) return {io_status::closed, 0, 0};
    if (blocked(writes_)) return {io_status::would_block, 0, 0};
    std::array<std::span<const std::byte>, 64> fewer;
    const std::size_t n = limit<const std::byte>(spans, fewer, f_.most_per_write);
    if (!meddles_) return inner_.write_some({fewer.data(), n});
    if (const io_result io = flush(); io.status != io_status::ok || !waiting_.empty())
      return {io.status == io_status::ok ? io_status::would_block : io.status, io.system, 0};
    std::size_t taken = 0;
    for (std::size_t i = 0; i < n; ++i) {
      frames_.take(fewer[i],
                   [this](std::span<const std::byte> b) { waiting_.insert(waiting_.end(), b.begin(), b.end()); });
      taken += fewer[i].size();
    }
    (void)flush();
    return {io_status::ok, 0, taken};
  }
  io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    if (meddles_) (void)flush();
    return inner_.wait(read, write || !waiting_.empty(), timeout);
  }
  /// Sends a late frame that no other frame is left to overtake.
  void release() noexcept {
    frames_.release([this](std::span<const std::byte> b) { waiting_.insert(waiting_.end(), b.begin(), b.end()); });
    (void)flush();
  }

 private:
  template <class Byte>
  static std::size_t limit(std::span<const std::span<Byte>> spans, std::span<std::span<Byte>> out,
                           std::uint64_t most) noexcept {
    std::size_t n = 0;
    for (const auto& s : spans) {
      if (n == out.size() || most == 0) break;
      out[n++] = s.first(static_cast<std::size_t>(std::min<std::uint64_t>(s.size(), most)));
      most -= out[n - 1].size();
    }
    return n;
  }
  bool blocked(std::uint32_t& calls) noexcept {
    if (f_.blocked_calls == 0) return false;
    return ++calls % (f_.blocked_calls + 1) != 0;
  }
  bool stalled() noexcept {
    if (read_ < f_.stall_after || f_.stalled_calls == 0) return false;
    --f_.stalled_calls;
    return true;
  }
  io_result flush() noexcept {
    if (waiting_.empty()) return {};
    const std::span<const std::byte> all(waiting_);
    const io_result io = inner_.write_some({&all, 1});
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(io.bytes));
    return io;
  }

  S inner_;
  stream_faults f_;
  frame_faults frames_;
  std::vector<std::byte> waiting_;
  std::uint64_t read_ = 0;
  std::uint32_t reads_ = 0, writes_ = 0;
  bool meddles_ = false;
};

}  // namespace tensorpull::testing
