// The chunks that the lines of one pull have asked for, and the bytes that are missing.
#pragma once

#include <tensorpull/std/algorithm.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace tensorpull::detail {

/// The most parts of an image, most of them from one source each.
inline constexpr std::size_t most_parts = 64;

/// An image is cut into at most most_parts parts of equal length, a power of two. A line claims a part and cuts chunks
/// from it, so that most parts are from one source. All bytes have landed but those in the list of chunks, in the rest
/// of a claimed part, or in unclaimed parts. `Lines`: numbered from 0. `Most`: chunks that are remembered at a time.
/// Positions count as a transfer's do.
template <std::size_t Lines, std::size_t Most>
class chunk_ledger {
  static_assert(Most < 255);

 public:
  /// No line lands a chunk.
  static constexpr std::uint8_t nobody = 0xff;

  /// A chunk that is missing.
  struct chunk {
    std::uint64_t begin = 0, end = 0;
    std::uint64_t landed = 0;  ///< bytes from `begin` on, which its writer has landed
    std::uint32_t generation = 0;  ///< of the entry: numbers of earlier chunks do not match
    std::uint8_t asked = 0;  ///< lines whose answer is awaited
    std::uint8_t writer = nobody;  ///< the line that lands it
    bool missing = false;  ///< false: the entry is free
    std::uint64_t length() const noexcept { return end - begin; }
  };
  /// The chunk of a request, as long as it is missing.
  struct number {
    std::uint8_t index = 0;
    std::uint32_t generation = 0;
    /// Of no chunk: what is asked for does not land.
    static constexpr number none() noexcept { return {0xff, 0}; }
    bool is_none() const noexcept { return index == 0xff; }
  };

  /// Everything in [from, to) is missing. The last byte is a chunk of its own.
  void begin(std::uint64_t from, std::uint64_t to) noexcept {
    for (chunk& c : chunks_) free(c);
    rests_ = {};
    next_ = from;
    end_ = to;
    shift_ = 0;
    while ((to >> shift_) >= most_parts) ++shift_;
    if (from < to) (void)add(--end_, to);
  }
  /// Where the last chunk ends.
  std::uint64_t end() const noexcept { return end_ + 1; }

  /// The chunk with this number; nullptr: it has landed, or was cut anew.
  chunk* find(const number& n) noexcept {
    if (n.index >= Most) return nullptr;
    chunk& c = chunks_[n.index];
    return c.missing && c.generation == n.generation ? &c : nullptr;
  }
  number number_of(const chunk& c) const noexcept {
    return {static_cast<std::uint8_t>(&c - chunks_.data()), c.generation};
  }

  /// The first chunk that `asked` lines were asked for and that `skips(chunk)` does not pass over; nullptr: there is
  /// none.
  template <class Skips>
  chunk* first_asked(std::uint8_t asked, Skips skips) noexcept {
    chunk* found = nullptr;
    for (chunk& c : chunks_)
      if (c.missing && c.asked == asked && !skips(c) && (found == nullptr || c.begin < found->begin)) found = &c;
    return found;
  }
  /// Whether a line has a part to cut from. If not, it claims one: a part that another line has left, a new one, or the
  /// second half of another connection's rest (all of it, if that is less than two chunks of `least` bytes).
  bool has_part(std::uint8_t line, std::uint64_t least) noexcept {
    rest& own = rests_[line];
    own.left = false;
    if (own.bytes() > 0) return true;
    rest* longest = nullptr;
    for (rest& r : rests_) {
      if (r.bytes() > 0 && r.left) {
        own = r;
        own.left = false;
        r = {};
        return true;
      }
      if (r.bytes() > 0 && (longest == nullptr || r.bytes() > longest->bytes())) longest = &r;
    }
    if (next_ < end_) {
      own = {next_, std::min(((next_ >> shift_) + 1) << shift_, end_), false};
      next_ = own.end;
    } else if (longest != nullptr) {
      // its line may be silent, so not even a short rest is left to it
      own = {longest->begin + (longest->bytes() < 2 * least ? 0 : longest->bytes() / 2), longest->end, false};
      longest->end = own.begin;
    }
    return own.bytes() > 0;
  }
  /// Where its next chunk begins.
  std::uint64_t next_of(std::uint8_t line) const noexcept { return rests_[line].begin; }
  std::uint64_t rest_of(std::uint8_t line) const noexcept { return rests_[line].bytes(); }
  /// Cuts a chunk from its part. nullptr: there is no room.
  chunk* cut(std::uint8_t line, std::uint64_t length) noexcept {
    rest& r = rests_[line];
    chunk* const c = add(r.begin, r.begin + length);
    if (c != nullptr) r.begin += length;
    return c;
  }
  /// Others may cut from the rest of its part.
  void leave(std::uint8_t line) noexcept { rests_[line].left = true; }

  /// A line will not answer for the chunk. Its landed bytes stay if `keeps`, and if no other answer for all of it
  /// may arrive.
  void give_back(chunk& c, std::uint8_t line, bool keeps) noexcept {
    if (c.asked > 0) --c.asked;
    if (c.writer != line) return;
    c.writer = nobody;
    const std::uint64_t landed = keeps && c.asked == 0 ? c.landed : 0;
    c.landed = 0;
    if (landed == 0) return;
    c.begin += landed;
    ++c.generation;
  }
  /// Its landed bytes stay, and the rest is asked for again.
  void go_on(chunk& c) noexcept {
    c.begin += c.landed;
    c.landed = 0;
    c.asked = 0;
    c.writer = nobody;
    ++c.generation;
  }
  /// It has landed.
  void done(chunk& c) noexcept { free(c); }

  /// All before this position has landed.
  std::uint64_t first_missing() const noexcept {
    std::uint64_t least = next_ < end_ ? next_ : end();
    for (const chunk& c : chunks_)
      if (c.missing) least = std::min(least, c.begin);
    for (const rest& r : rests_)
      if (r.bytes() > 0) least = std::min(least, r.begin);
    return least;
  }
  /// Bytes that have not landed.
  std::uint64_t missing() const noexcept {
    std::uint64_t missing = end_ - next_;
    for (const chunk& c : chunks_)
      if (c.missing) missing += c.length() - c.landed;
    for (const rest& r : rests_) missing += r.bytes();
    return missing;
  }

 private:
  /// The rest of a connection's part.
  struct rest {
    std::uint64_t begin = 0, end = 0;
    bool left = false;
    std::uint64_t bytes() const noexcept { return end - begin; }
  };

  chunk* add(std::uint64_t begin, std::uint64_t end) noexcept {
    for (chunk& c : chunks_) {
      if (c.missing) continue;
      c.begin = begin;
      c.end = end;
      c.missing = true;
      return &c;
    }
    return nullptr;
  }
  static void free(chunk& c) noexcept {
    c.missing = false;
    ++c.generation;
    c.asked = 0;
    c.landed = 0;
    c.writer = nobody;
  }

  std::array<chunk, Most> chunks_{};
  std::array<rest, Lines> rests_{};
  std::uint64_t next_ = 0, end_ = 0;  // of the unclaimed parts
  std::uint8_t shift_ = 0;
};

}  // namespace tensorpull::detail
