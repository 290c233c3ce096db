// Frames that are longer than a datagram, in pieces: whole, in order, once. A cumulative answer has how much has
// arrived; the rest is sent again.
#pragma once

#include <tensorpull/core/buffer_pool.hpp>
#include <tensorpull/framing/detail/piece_prefix.hpp>
#include <tensorpull/protocol/datagrams/round_trip.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

namespace tensorpull::detail {

/// The frame that one end sends in pieces: one at a time, in a buffer of a pool.
class outgoing_frame {
 public:
  using time = round_trip::time;
  /// Pieces on their way.
  static constexpr std::size_t window = 8;

  /// `sender`: a random number.
  explicit outgoing_frame(std::uint64_t sender) noexcept : sender_(sender) {}

  bool busy() const noexcept { return bytes_ != nullptr; }
  /// Takes a frame of `size` bytes, which stays where it is until end().
  void begin(std::byte* bytes, std::size_t size) noexcept {
    bytes_ = bytes;
    size_ = static_cast<std::uint32_t>(size);
    taken_ = next_ = again_ = furthest_ = 0;
    repeated_ = 0;
    timed_ = false;
  }
  const std::byte* bytes() const noexcept { return bytes_; }
  /// How many bytes the other end has.
  std::uint32_t arrived() const noexcept { return taken_; }
  /// It has arrived, or is given up.
  std::byte* end() noexcept {
    ++number_;
    return std::exchange(bytes_, nullptr);
  }

  /// Whether a piece should leave now.
  bool ready(time now, std::size_t piece_bytes) const noexcept {
    return bytes_ != nullptr && ((next_ < size_ && next_ - taken_ < window * piece_bytes) || now >= due_);
  }
  /// When one should leave although nothing arrives.
  time wakes(std::size_t piece_bytes) const noexcept {
    if (bytes_ == nullptr) return time::max();
    return next_ < size_ && next_ - taken_ < window * piece_bytes ? time::min() : due_;
  }
  /// The next piece, of at most `most` bytes.
  std::span<const std::byte> next(piece& head, std::size_t most, round_trip& trip, time now) noexcept {
    if (next_ != taken_ && now >= due_) {
      trip.back_off();
      timed_ = false;
      if (++again_ > 2) taken_ = 0;  // the end that had the beginning may have been started again
      next_ = taken_;
    }
    const std::uint32_t n = std::min(size_ - next_, static_cast<std::uint32_t>(most));
    head = {frame_kind::piece, sender_, number_, next_, size_, n};
    const std::span<const std::byte> part{bytes_ + next_, n};
    next_ += n;
    if (!timed_ && next_ > furthest_) {  // one that was sent once
      timed_ = true;
      timed_at_ = now;
      timed_to_ = next_;
    }
    furthest_ = std::max(furthest_, next_);
    due_ = now + trip.timeout();
    return part;
  }
  /// The link did not take the last piece.
  void not_sent() noexcept { next_ = taken_; }
  /// How much the other end has. True: all of it; call end().
  bool taken(const piece& p, round_trip& trip, time now) noexcept {
    if (bytes_ == nullptr || p.sender != sender_) return false;
    if (p.number == number_ + 1) {
      if (timed_) trip.took(now - timed_at_);
      return true;
    }
    if (p.number != number_ || p.offset > size_ || p.offset < taken_) return false;
    if (timed_ && p.offset >= timed_to_) {
      trip.took(now - timed_at_);
      timed_ = false;
    }
    if (p.offset > taken_) {
      repeated_ = 0;
      trip.go_on();
    } else if (++repeated_ == 3) {  // a piece is missing, since three later ones arrived
      next_ = taken_;
      timed_ = false;
    }
    taken_ = p.offset;
    again_ = 0;
    next_ = std::max(next_, taken_);
    due_ = now + trip.timeout();
    return false;
  }

 private:
  std::byte* bytes_ = nullptr;
  std::uint64_t sender_;
  time timed_at_{}, due_{};
  std::uint32_t number_ = 0, size_ = 0, taken_ = 0, next_ = 0, again_ = 0, furthest_ = 0, timed_to_ = 0;
  std::uint8_t repeated_ = 0;
  bool timed_ = false;
};

/// The frame that arrives in pieces at one end.
class incoming_frame {
 public:
  /// The kinds of pieces.
  enum class standing : std::uint8_t {
    old,  ///< it has arrived before, or it is too early: the sender is told what is here
    next,  ///< it is the next one
    forgotten  ///< of an end that was started again since
  };
  /// Compares a piece with what is here. A frame that its sender has given up is dropped.
  template <class Pool>
  standing judge(const piece& p, Pool& pool) noexcept {
    if (p.sender == 0 || (p.sender != sender_ && (p.sender == before_ || p.offset != 0))) return standing::forgotten;
    if (p.sender != sender_) {
      drop(pool);
      before_ = std::exchange(sender_, p.sender);
      number_ = p.number;
    } else if (static_cast<std::int32_t>(p.number - number_) > 0 && p.offset == 0) {
      drop(pool);
      number_ = p.number;
    }
    const bool fits = p.number == number_ && p.offset == have_ && p.length > 0 && (have_ == 0 || p.total == total_);
    return fits ? standing::next : standing::old;
  }
  /// Adds a piece that is next. False: no buffer is free.
  template <class Pool>
  bool add(const piece& p, std::span<const std::byte> payload, Pool& pool) noexcept {
    if (have_ == 0 && bytes_ == nullptr) bytes_ = pool.acquire();
    if (bytes_ == nullptr) return false;
    total_ = p.total;
    std::memcpy(bytes_ + have_, payload.data(), payload.size());
    have_ += p.length;
    return true;
  }
  bool begun() const noexcept { return bytes_ != nullptr; }
  bool whole() const noexcept { return bytes_ != nullptr && have_ == total_; }
  std::span<const std::byte> bytes() const noexcept { return {bytes_, total_}; }
  /// The last `n` bytes have to be sent again.
  void take_back(std::uint32_t n) noexcept { have_ -= n; }
  /// The frame was taken.
  template <class Pool>
  void end(Pool& pool) noexcept {
    drop(pool);
    ++number_;
  }
  template <class Pool>
  void drop(Pool& pool) noexcept {
    have_ = total_ = 0;
    if (bytes_ != nullptr) pool.release(std::exchange(bytes_, nullptr));
  }
  /// The answer to the sender.
  piece answer() const noexcept { return {frame_kind::taken, sender_, number_, have_, 0, 0}; }

 private:
  std::byte* bytes_ = nullptr;
  std::uint64_t sender_ = 0, before_ = 0;  // whose pieces they are, and whose they were
  std::uint32_t number_ = 0, have_ = 0, total_ = 0;
};

}  // namespace tensorpull::detail
