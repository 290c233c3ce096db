// Which bytes of an image a recipient has been sent over HTTP. Ranges come in any order and over several connections.
#pragma once

#include <tensorpull/core/ids.hpp>
#include <tensorpull/framing/frame.hpp>
#include <tensorpull/std/mutex.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tensorpull::detail {

/// Ranges of one recipient. It remembers at most `most` that do not touch; if there are more, the shortest is
/// forgotten, so that it never claims too much.
class sent_ranges {
 public:
  static constexpr std::size_t most = 8;

  /// Bytes [begin, end) were sent. True: all bytes before `whole` have been.
  bool add(std::uint64_t begin, std::uint64_t end, std::uint64_t whole) noexcept {
    for (std::size_t i = 0; i < count_;) {
      if (ranges_[i].begin > end || ranges_[i].end < begin) {
        ++i;
        continue;
      }
      begin = ranges_[i].begin < begin ? ranges_[i].begin : begin;
      end = ranges_[i].end > end ? ranges_[i].end : end;
      ranges_[i] = ranges_[--count_];
    }
    if (count_ == most) {
      std::size_t shortest = 0;
      for (std::size_t i = 1; i < count_; ++i)
        if (ranges_[i].end - ranges_[i].begin < ranges_[shortest].end - ranges_[shortest].begin) shortest = i;
      ranges_[shortest] = ranges_[--count_];
    }
    ranges_[count_++] = {begin, end};
    return begin == 0 && end >= whole;
  }

 private:
  struct range {
    std::uint64_t begin, end;
  };
  std::array<range, most> ranges_{};
  std::size_t count_ = 0;
};

/// To whom bytes were sent, and of what. A recipient that has a name is known again after it has cancelled or was lost.
struct sent_to {
  ref_id ref{};
  std::uint64_t version = 0;
  recipient_id who{};  ///< none: it has no name
  std::uint64_t nonce = 0;  ///< of the serve, if it has no name

  /// The recipient that asks with this frame and is served under this nonce.
  static sent_to by(const frame& m, std::uint64_t nonce) noexcept {
    return {m.ref, m.version, m.recipient, m.recipient ? 0 : nonce};
  }
  friend bool operator==(const sent_to&, const sent_to&) = default;
};

/// The ranges of all recipients, by the number of their record. A record that is another's begins with none.
template <class Lock>
class owner_coverage {
 public:
  /// Allocates 176 bytes for each record. Throws std::bad_alloc.
  explicit owner_coverage(std::size_t records) : of_(records) {}

  /// As sent_ranges::add.
  bool add(std::uint32_t record, const sent_to& to, std::uint64_t begin, std::uint64_t end,
           std::uint64_t whole) noexcept {
    if (record >= of_.size()) return false;
    const lock_guard hold(lock_);
    auto& e = of_[record];
    if (!(e.to == to)) e = {to, {}};
    return e.ranges.add(begin, end, whole);
  }
  /// It has ended with every byte, so what it fetches from now on counts from the beginning.
  void ended(std::uint32_t record, const sent_to& to) noexcept {
    if (record >= of_.size()) return;
    const lock_guard hold(lock_);
    if (of_[record].to == to) of_[record] = {};
  }

 private:
  struct entry {
    sent_to to{};
    sent_ranges ranges{};
  };
  std::vector<entry> of_;
  [[no_unique_address]] Lock lock_{};
};

}  // namespace tensorpull::detail
