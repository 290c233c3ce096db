// The digests that an owner computes for its recipients, a slice at a time: of chunks, and of subsets. A request of a
// few hundred bytes can ask for a pass over the whole image. So each digest is remembered, nobody waits for more than a
// slice of another's, and what is hashed for recipients that do not take it has a budget.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/integrity/range_digest.hpp>
#include <tensorpull/protocol/owner/detail/transaction_table.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/chrono.hpp>

#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

namespace tensorpull::detail {

/// Bytes that are hashed in one turn of a connection whose recipient has not taken enough to pay for them.
inline constexpr std::uint64_t digest_slice_bytes = 64 * 1024;

/// The bytes that a digest is of.
struct digest_key {
  std::uint64_t at = 0;  ///< chunk: its offset; subset: a hash of its names
  std::uint64_t length = 0;  ///< chunk: in bytes; subset: how many names
  std::uint32_t slot = 0;  ///< of the publication
  std::uint32_t generation = 0;  ///< of the publication; 0: no digest at all
  digest_kind kind = digest_kind::none;
  friend constexpr bool operator==(const digest_key&, const digest_key&) = default;
};

/// Digests that were computed. The one that is worth least makes room for a new one: at first each is worth the bytes
/// that were hashed for it, and each time that one makes room, all others lose what it was worth (GreedyDual). So
/// whoever wants to have others forgotten hashes as many bytes as they are of.
template <std::size_t Count>
class digest_memory {
 public:
  /// nullptr: it is not remembered.
  const std::uint64_t* find(const digest_key& key) noexcept {
    for (entry& e : entries_)
      if (e.key == key) {
        e.worth = above(e.bytes);
        return &e.digest;
      }
    return nullptr;
  }
  /// `bytes`: that were hashed.
  void add(const digest_key& key, std::uint64_t digest, std::uint64_t bytes) noexcept {
    if constexpr (Count > 0) {
      entry* least = entries_.data();
      for (entry& e : entries_)
        if (e.worth < least->worth) least = &e;
      lost_ = least->worth;
      *least = {key, digest, bytes, above(bytes)};
    }
  }

 private:
  struct entry {
    digest_key key{};
    std::uint64_t digest = 0, bytes = 0, worth = 0;  // the latter with what all have lost
  };
  std::uint64_t above(std::uint64_t bytes) const noexcept {
    return bytes < ~std::uint64_t{0} - lost_ ? lost_ + bytes : ~std::uint64_t{0};
  }

  std::array<entry, Count> entries_{};
  std::uint64_t lost_ = 0;
};

/// Bytes for each second of the owner's clock. Without a clock there are no budgets, and more than 2^40 bytes a second
/// count as that.
template <std::uint64_t PerSecond>
class digest_budget {
 public:
  bool left(std::chrono::milliseconds now) noexcept {
    constexpr std::uint64_t most_ms = (std::uint64_t{1} << 63) / (rate == 0 ? 1 : rate);  // no product is above 2^63
    const auto passed_ms = std::min(static_cast<std::uint64_t>((now - refilled_at_).count()), most_ms);
    used_ -= std::min(used_, passed_ms * rate);
    refilled_at_ = now;
    return used_ < rate * 1000;
  }
  void spend(std::uint64_t bytes, std::chrono::milliseconds now) noexcept {
    if (now.count() != 0) used_ += std::min(bytes, std::uint64_t{1} << 53) * 1000;
  }

 private:
  static constexpr std::uint64_t rate = std::min(PerSecond, std::uint64_t{1} << 40);

  std::uint64_t used_ = 0;  ///< in thousandths of a byte, so that a millisecond gives a whole number of them
  std::chrono::milliseconds refilled_at_{};
};

/// A digest that is being computed. One thread at a time has it in hand; it hashes without the owner's lock.
template <hash Hash, hash ChunkHash = Hash>
struct digest_job {
  static constexpr digest_kind whole_kind = digest_kind_of<Hash>;  ///< of images and subsets

  digest_key key{};  ///< generation 0: the entry is free
  std::uint64_t bytes = 0;  ///< to hash in all
  std::uint64_t done = 0;  ///< of them
  bool in_hand = false;  ///< by a thread that hashes
  bool paid = false;  ///< chunk: its recipient has taken enough

  void begin(const digest_key& what, std::uint64_t all, bool is_paid) noexcept {
    key = what;
    bytes = all;
    done = 0;
    paid = is_paid;
    if (first()) whole_ = Hash();
    else other_ = other_hash();
  }
  void end() noexcept { key = {}; }
  std::uint64_t left() const noexcept { return bytes - done; }

  /// The next n bytes, of which `from` is the first. io: they could not be read.
  result<void> advance(const source_view& image, std::uint64_t from, std::uint64_t n,
                       std::span<std::byte> memory) noexcept {
    done += n;
    if constexpr (!std::is_same_v<Hash, ChunkHash>)
      if (!first()) return hash_range(other_, image, from, n, memory);
    return hash_range(whole_, image, from, n, memory);
  }
  /// The next n bytes of `count` parts of the image, which are hashed one after the other; fewer where they are many
  /// short runs. `part(i)` gives the i-th.
  template <class PartAt>
  result<void> advance(const source_view& image, std::size_t count, PartAt part, std::uint64_t n,
                       std::span<std::byte> memory) noexcept {
    std::uint64_t before = done, runs_left = 1024;
    for (std::size_t i = 0; i < count && n > 0 && runs_left > 0; ++i) {
      const strided_range<> p = part(i);
      const std::uint64_t size = p.size();
      if (before >= size) {
        before -= size;
        continue;
      }
      std::uint64_t here = std::min(n, size - before);
      if (p.runs.apart()) {
        here = std::min(here, runs_left * p.runs.length);
        runs_left -= std::min(runs_left, here / p.runs.length + 1);
        done += here;
        if (const auto read = hash_runs(whole_, image, p.begin, p.runs, before, here, memory); !read) return read;
      } else if (const auto read = advance(image, p.begin + before, here, memory); !read) {
        return read;
      }
      before = 0;
      n -= here;
    }
    return {};
  }
  std::uint64_t digest() const noexcept {
    if constexpr (!std::is_same_v<Hash, ChunkHash>)
      if (!first()) return other_.digest();
    return whole_.digest();
  }

 private:
  struct none {};
  using other_hash = std::conditional_t<std::is_same_v<Hash, ChunkHash>, none, ChunkHash>;
  bool first() const noexcept { return std::is_same_v<Hash, ChunkHash> || key.kind == whole_kind; }

  Hash whole_{};
  [[no_unique_address]] other_hash other_{};
};

/// Runs `advance(image)` of a job in hand without the owner's lock, while the image is pinned. A digest that is ready
/// is remembered. An image that cannot be read is given up.
template <class Job, class Memory, class Lock, class Advance>
void hash_slice(Job& job, Memory& memory, transaction_table& transactions, Lock& lock, Advance advance) noexcept {
  publication& p = transactions.publications.at(job.key.slot);
  job.in_hand = true;
  ++p.pins;
  lock.unlock();
  const bool read = advance(p.image).has_value();
  lock.lock();
  --p.pins;
  job.in_hand = false;
  if (!read && !transactions.publications.gone(job.key)) transactions.give_up(p);
  if (read && job.left() > 0) return;
  if (read) memory.add(job.key, job.digest(), job.bytes);
  job.end();
}

/// The jobs of chunks. Half of them (and the middle one) are for recipients that have taken enough, half for the
/// others, so that neither sort waits for the other. Not thread-safe: the owner has the lock.
template <class Job, std::size_t Count>
class digest_jobs {
 public:
  /// nullptr: it has not begun.
  Job* find(const digest_key& key) noexcept {
    for (Job& j : jobs_)
      if (j.key == key) return &j;
    return nullptr;
  }
  /// Begins a job. `gives_way(job)`: another replaces it, because nobody needs it any more or the new one is much
  /// shorter. nullptr: there is no room.
  template <class GivesWay>
  Job* begin(const digest_key& key, bool paid, GivesWay gives_way) noexcept {
    for (Job *j = first_of(paid), *const end = j + half; j != end; ++j)
      if (!j->in_hand && (j->key.generation == 0 || gives_way(*j))) {
        j->begin(key, key.length, paid);
        return j;
      }
    return nullptr;
  }
  /// The job to help with while there is no room: the one that ends soonest. nullptr: others have all in hand.
  Job* soonest(bool paid) noexcept {
    Job* best = nullptr;
    for (Job *j = first_of(paid), *const end = j + half; j != end; ++j)
      if (!j->in_hand && (best == nullptr || j->left() < best->left())) best = j;
    return best;
  }

 private:
  // walked by pointers: a loop over a span instantiates two hundred templates
  static constexpr std::size_t half = (Count + 1) / 2;
  Job* first_of(bool paid) noexcept { return jobs_.data() + (paid ? Count / 2 : 0); }

  std::array<Job, Count> jobs_{};
};

}  // namespace tensorpull::detail
