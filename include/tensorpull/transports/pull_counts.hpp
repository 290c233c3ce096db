// How the pulls of a program have ended, for those that watch it: each pull has a receipt, and nothing adds them up.
#pragma once

#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/core/result.hpp>

#include <atomic>
#include <cstdint>

namespace tensorpull {

/// The counts at one moment.
struct pull_figures {
  std::uint64_t completed = 0;  ///< pulls that have ended so
  std::uint64_t completed_unverified = 0;  ///< pulls that have ended so
  std::uint64_t failed = 0;  ///< pulls that have ended so
  std::uint64_t bytes = 0;  ///< of those that have completed
  std::uint64_t damaged = 0;  ///< chunks of theirs that arrived with wrong bytes and were fetched again
};

/// Counts pulls. Any thread may.
class pull_counts {
 public:
  /// A pull has ended.
  void add(const result<receipt>& done) noexcept {
    if (!done) return count(failed_, 1);
    count(done->outcome == outcome::completed ? completed_ : unverified_, 1);
    count(bytes_, done->bytes);
    count(damaged_, done->damaged);
  }
  operator pull_figures() const noexcept {
    return {completed_.load(relaxed), unverified_.load(relaxed), failed_.load(relaxed), bytes_.load(relaxed),
            damaged_.load(relaxed)};
  }

 private:
  static constexpr auto relaxed = std::memory_order_relaxed;
  static void count(std::atomic<std::uint64_t>& in, std::uint64_t n) noexcept { in.fetch_add(n, relaxed); }
  std::atomic<std::uint64_t> completed_{0}, unverified_{0}, failed_{0}, bytes_{0}, damaged_{0};
};

}  // namespace tensorpull
