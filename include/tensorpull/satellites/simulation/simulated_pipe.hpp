// One direction of a simulated connection: carries bytes in virtual time, and has the faults of a network.
#pragma once

#include <tensorpull/links/byte_stream.hpp>
#include <tensorpull/satellites/simulation/event_queue.hpp>
#include <tensorpull/std/chrono.hpp>
#include <tensorpull/testing/frame_faults.hpp>
#include <tensorpull/testing/seeded_random.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

namespace tensorpull::testing {

/// How a connection behaves without faults. By default it delays nothing and never splits a write.
struct wire_conditions {
  std::chrono::microseconds latency{0};  ///< from write to read
  std::chrono::microseconds jitter{0};  ///< added to the latency of each write, at random; bytes never overtake
  std::size_t capacity_bytes = 64 * 1024;  ///< bytes that one direction holds before its writer has to wait
  std::size_t most_per_read = ~std::size_t{0};  ///< a call moves from 1 to this many bytes, at random
  std::size_t most_per_write = ~std::size_t{0};  ///< the same for writes
};

/// A pipe with one writer and one reader. Allocates when made, and later only for frames that a fault doubles or holds
/// back.
class simulated_pipe {
 public:
  /// Borrows the clock. `random` decides jitter and splits.
  simulated_pipe(virtual_clock& clock, const wire_conditions& c, seeded_random random)
      : clock_(clock), c_(c), random_(random) {
    bytes_.reserve(2 * c.capacity_bytes);
    arrivals_.reserve(2 * max_arrivals);
  }

  /// As byte_stream's write_some().
  io_result write(gather_list spans) {
    if (broken_ != 0 || no_reader_) return {io_status::closed, broken_ != 0 ? broken_ : EPIPE, 0};
    const std::size_t room = c_.capacity_bytes - std::min(c_.capacity_bytes, waiting());
    std::size_t left = std::min(room, some(c_.most_per_write)), taken = 0;
    for (const auto& s : spans) {
      const std::size_t n = std::min(s.size(), left);
      if (n > 0) faults.take(s.first(n), [this](std::span<const std::byte> b) { put(b); });
      left -= n;
      taken += n;
    }
    if (faults.holding() && held_since_ == 0) held_since_ = clock_.now() + 1;
    return {taken > 0 ? io_status::ok : io_status::would_block, 0, taken};
  }

  /// As byte_stream's read_some().
  io_result read(scatter_list spans) {
    if (broken_ != 0) return {io_status::closed, broken_, 0};
    release_late();
    std::size_t left = std::min(arrived(), some(c_.most_per_read)), taken = 0;
    for (const auto& s : spans) {
      const std::size_t n = std::min(s.size(), left);
      if (n > 0) take({s.data(), n});
      left -= n;
      taken += n;
    }
    if (taken > 0) return {io_status::ok, 0, taken};
    return {at_end() ? io_status::closed : io_status::would_block, 0, 0};
  }

  /// Whether a call of read() would not return would_block.
  bool readable() {
    release_late();
    return broken_ != 0 || arrived() > 0 || at_end();
  }
  /// Whether a call of write() would not return would_block.
  bool writable() const noexcept { return broken_ != 0 || no_reader_ || waiting() < c_.capacity_bytes; }
  /// When the reader should look again, in microseconds; nothing: only after the writer has done something.
  std::optional<std::uint64_t> next_arrival() const noexcept {
    if (broken_ != 0) return clock_.now();
    if (lost_) return std::nullopt;
    if (first_ < arrivals_.size()) return std::max(arrivals_[first_].at_us, clock_.now());
    if (held_since_ != 0) return held_since_ + late_us;
    if (ended_) return std::max(end_at_, clock_.now());
    return std::nullopt;
  }
  /// Bytes that were written and not read yet.
  std::size_t waiting() const noexcept { return bytes_.size() - head_; }
  /// Bytes that were written since it was made.
  std::uint64_t carried() const noexcept { return carried_; }

  // The faults.
  /// Delays what is written from now on.
  void stall(std::chrono::microseconds time) noexcept {
    last_at_ = std::max(last_at_, clock_.now()) + static_cast<std::uint64_t>(time.count());
  }
  /// Ends the connection after so many more bytes, even in the middle of a frame.
  void cut_after(std::uint64_t bytes) noexcept { cut_at_ = std::min(cut_at_, carried_ + bytes); }
  /// Gives both sides an error now. Bytes in flight are lost.
  void reset() noexcept { broken_ = ECONNRESET; }
  /// Loses what is on its way and what is written later. Neither side is told.
  void lose() noexcept { lost_ = true; }

  // The ends.
  /// The writer has closed: the reader gets what was written, then the end.
  void writer_closed() noexcept {
    faults.release([this](std::span<const std::byte> b) { put(b); });
    held_since_ = 0;
    ended_ = true;
    end_at_ = arrival();
  }
  /// The reader has closed: writes return `closed` from now on.
  void reader_closed() noexcept { no_reader_ = !lost_; }

  frame_faults faults;  ///< faults of frames; arm them before the first byte

 private:
  static constexpr std::size_t max_arrivals = 64;
  static constexpr std::uint64_t late_us = 30'000;

  struct arriving {
    std::uint64_t end;  ///< of the bytes carried so far
    std::uint64_t at_us;
  };

  std::size_t some(std::size_t most) noexcept {
    return most == ~std::size_t{0} ? most : 1 + static_cast<std::size_t>(random_.below(most));
  }
  std::uint64_t arrival() noexcept {
    const auto latency = static_cast<std::uint64_t>(c_.latency.count()),
               jitter = static_cast<std::uint64_t>(c_.jitter.count());
    last_at_ = std::max(last_at_, clock_.now() + latency + (jitter > 0 ? random_.below(jitter) : 0));
    return last_at_;
  }

  void put(std::span<const std::byte> b) {
    if (carried_ + b.size() >= cut_at_) {
      b = b.first(static_cast<std::size_t>(cut_at_ - carried_));
      if (!ended_) {
        ended_ = true;
        end_at_ = arrival();
      }
      no_reader_ = true;
      if (b.empty()) return;
    }
    if (b.empty()) return;
    if (head_ > 0 && (head_ == bytes_.size() || bytes_.size() + b.size() > bytes_.capacity())) {
      bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(head_));
      head_ = 0;
    }
    bytes_.insert(bytes_.end(), b.begin(), b.end());
    carried_ += b.size();
    const std::uint64_t at = arrival();
    if (first_ == arrivals_.size()) {
      arrivals_.clear();
      first_ = 0;
    }
    if (arrivals_.size() > first_ && (arrivals_.back().at_us == at || arrivals_.size() - first_ >= max_arrivals)) {
      arrivals_.back() = {carried_, at};
    } else {
      if (arrivals_.size() == 2 * max_arrivals)
        arrivals_.erase(arrivals_.begin(), arrivals_.begin() + static_cast<std::ptrdiff_t>(first_)), first_ = 0;
      arrivals_.push_back({carried_, at});
    }
  }
  void take(std::span<std::byte> out) noexcept {
    std::memcpy(out.data(), bytes_.data() + head_, out.size());
    head_ += out.size();
    read_ += out.size();
  }
  /// Bytes that may be read now.
  std::size_t arrived() noexcept {
    if (lost_) return 0;
    while (first_ < arrivals_.size() && arrivals_[first_].at_us <= clock_.now()) here_ = arrivals_[first_++].end;
    return static_cast<std::size_t>(here_ - read_);
  }
  bool at_end() const noexcept { return ended_ && !lost_ && waiting() == 0 && end_at_ <= clock_.now(); }
  void release_late() {
    if (held_since_ == 0 || (faults.holding() && clock_.now() < held_since_ + late_us)) return;
    held_since_ = 0;
    faults.release([this](std::span<const std::byte> b) { put(b); });
  }

  virtual_clock& clock_;
  wire_conditions c_;
  seeded_random random_;
  std::vector<std::byte> bytes_;
  std::vector<arriving> arrivals_;
  std::size_t head_ = 0, first_ = 0;
  std::uint64_t carried_ = 0, here_ = 0, read_ = 0;  // bytes put in; of them arrived; of them read
  std::uint64_t last_at_ = 0, end_at_ = 0, held_since_ = 0, cut_at_ = ~std::uint64_t{0};
  int broken_ = 0;
  bool ended_ = false, no_reader_ = false, lost_ = false;
};

}  // namespace tensorpull::testing
