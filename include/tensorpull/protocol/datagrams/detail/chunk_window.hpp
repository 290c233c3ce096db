// The chunks that a recipient over datagrams has asked for, from the first missing one on.
#pragma once

#include <tensorpull/std/algorithm.hpp>

#include <array>
#include <bit>
#include <cstdint>

namespace tensorpull::detail {

/// Chunks by number, at most `slots` of them, a power of two from 64. Positions are those of wanted bytes. Of a chunk
/// it remembers where it begins, whether it is there, whether it is held, and whether it has to be asked for again.
template <std::uint32_t slots>
class chunk_window {
  /// A bit for each chunk.
  class bits {
   public:
    bool test(std::uint32_t k) const noexcept { return (word(k) >> (k % 64) & 1) != 0; }
    void set(std::uint32_t k) noexcept { words_[k % slots / 64] |= std::uint64_t{1} << (k % 64); }
    void clear(std::uint32_t k) noexcept { words_[k % slots / 64] &= ~(std::uint64_t{1} << (k % 64)); }
    std::uint64_t word(std::uint32_t k) const noexcept { return words_[k % slots / 64]; }

   private:
    std::array<std::uint64_t, slots / 64> words_{};
  };

 public:
  bits here{}, held{};

  /// Nothing was asked for, and what is missing begins here.
  void begin(std::uint64_t position) noexcept {
    here = held = again_ = {};
    again_count_ = first_ = last_ = 0;
    begin_ = end_ = position;
  }
  /// The first chunk that is missing.
  std::uint32_t first() const noexcept { return first_; }
  /// One past the last that was asked for.
  std::uint32_t last() const noexcept { return last_; }
  std::uint32_t size() const noexcept { return last_ - first_; }
  bool has(std::uint32_t k) const noexcept { return k - first_ < size(); }
  /// The position behind them.
  std::uint64_t end() const noexcept { return end_; }
  std::uint64_t begin_of(std::uint32_t k) const noexcept {
    return k == last_ ? end_
                      : begin_ + static_cast<std::uint32_t>(start_[k % slots] - static_cast<std::uint32_t>(begin_));
  }
  std::uint64_t length_of(std::uint32_t k) const noexcept { return begin_of(k + 1) - begin_of(k); }
  /// The chunk of a slot; there may be none.
  std::uint32_t of_slot(std::uint16_t slot) const noexcept { return first_ + ((slot - first_) & (slots - 1)); }
  /// The chunk that begins at a position, or last().
  std::uint32_t find(std::uint64_t position) const noexcept {
    std::uint32_t low = first_;
    for (std::uint32_t count = size(); count > 0;) {
      const std::uint32_t half = count / 2, middle = low + half;
      if (begin_of(middle) < position) {
        low = middle + 1;
        count -= half + 1;
      } else {
        count = half;
      }
    }
    return low != last_ && begin_of(low) == position ? low : last_;
  }

  /// Adds a chunk behind the others.
  std::uint32_t add(std::uint64_t length) noexcept {
    start_[last_ % slots] = static_cast<std::uint32_t>(end_);
    here.clear(last_);
    end_ += length;
    return last_++;
  }
  /// The first chunk is missing no more.
  void pass() noexcept {
    begin_ += length_of(first_);
    ++first_;
  }

  /// How many have to be asked for again.
  std::uint32_t again_count() const noexcept { return again_count_; }
  /// It has to be asked for again, unless it is there or not one of these.
  void ask_again(std::uint32_t k) noexcept {
    if (!has(k) || here.test(k) || again_.test(k)) return;
    again_.set(k);
    ++again_count_;
  }
  /// It need not, after all.
  void not_again(std::uint32_t k) noexcept {
    if (!again_.test(k)) return;
    again_.clear(k);
    --again_count_;
  }
  /// The first that has to be asked for again, or last().
  std::uint32_t first_again() const noexcept {
    for (std::uint32_t k = first_; k != last_;) {
      const std::uint64_t word = again_.word(k) >> (k % 64);
      if (word != 0) return k + static_cast<std::uint32_t>(std::countr_zero(word));
      k += std::min(64 - k % 64, last_ - k);
    }
    return last_;
  }

 private:
  std::array<std::uint32_t, slots> start_{};  // modulo 2^32
  bits again_{};
  std::uint64_t begin_ = 0, end_ = 0;
  std::uint32_t first_ = 0, last_ = 0, again_count_ = 0;
};

}  // namespace tensorpull::detail
