// The digests that go along with chunks.
#pragma once

#include <tensorpull/core/limits.hpp>
#include <tensorpull/protocol/owner/detail/digests.hpp>
#include <tensorpull/protocol/pending_reply.hpp>
#include <tensorpull/protocol/roles.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull::detail {

/// Computes digests of chunks. Hashing for recipients that do not take the chunks stays within a budget, however
/// many ask. `Threads`: whether several threads compute. Not thread-safe: the caller has the owner's lock, which is
/// released while bytes are hashed.
template <class Job, class Limits, bool Threads>
class chunk_digests {
 public:
  /// As owner::digest.
  template <class Lock>
  digest_state digest(transaction_table& transactions, Lock& lock, pending_reply& r, std::uint64_t& allowance,
                      std::span<std::byte> memory) noexcept {
    const digest_key key{r.offset, r.length, r.slot, r.generation, r.chunk_digest};
    for (;;) {
      const std::uint64_t* const known = known_.find(key);
      if (known != nullptr || transactions.publications.gone(key)) {
        if (known != nullptr) r.digest = *known;
        r.chunk_digest = digest_kind::none;
        return digest_state::ready;
      }
      if (allowance == 0) return digest_state::working;
      const auto now = transactions.now;
      Job* const job = job_of(key, transactions, r);
      if (job == nullptr || job->in_hand) return digest_state::working;
      if (!job->paid) {
        if (!budget_.left(now)) return digest_state::waiting;
        allowance = std::min(allowance, digest_slice_bytes);
      }
      const std::uint64_t n = std::min(job->left(), allowance);
      allowance -= n;
      if (!job->paid) budget_.spend(n, now);
      const std::uint64_t from = job->key.at + job->done;
      hash_slice(*job, known_, transactions, lock,
                 [&](const source_view& image) { return job->advance(image, from, n, memory); });
    }
  }

 private:
  /// The job of a chunk's digest, or if there is no room for it, one to help with. nullptr: other threads have them all
  /// in hand.
  Job* job_of(const digest_key& key, transaction_table& transactions, const pending_reply& r) noexcept {
    if (Job* const there = jobs_.find(key)) return there;
    recipient_record& to = transactions.records.at(r.record);
    // Twice what was taken, so that it can be paid with one chunk while another is on its way. Bytes taken long ago
    // do not pay for much now.
    constexpr std::uint64_t most = 2 * std::min(Limits::chunk_cap_bytes, max_payload_bytes);
    const std::uint64_t earned = 2 * to.bytes;
    const std::uint64_t spent = std::max(to.hashed, earned - std::min(earned, most));
    const bool paid = transactions.records.behind(r) != nullptr && spent + key.length <= earned;
    const auto gives_way = [&](const Job& j) {
      return transactions.publications.gone(j.key) ||
             (!paid && !j.paid && j.left() / 2 > key.length && may_waste(j.done, transactions.now));
    };
    Job* const begun = jobs_.begin(key, paid, gives_way);
    if (begun == nullptr) return jobs_.soonest(paid);
    if (paid) to.hashed = spent + key.length;
    return begun;
  }
  /// Whether so much that was hashed may be thrown away now. Without a limit peers that ask for short chunks could keep
  /// a long one from ever being hashed.
  bool may_waste(std::uint64_t bytes, std::chrono::milliseconds now) noexcept {
    if (!waste_budget_.left(now)) return false;
    waste_budget_.spend(bytes, now);
    return true;
  }

  static constexpr std::size_t jobs = Limits::chunk_digest_bytes_per_second > 0 ? Limits::digest_jobs : 0;
  [[no_unique_address]] digest_jobs<Job, (Threads ? 4 : 1) * jobs> jobs_{};
  digest_memory<8 * jobs> known_{};
  digest_budget<Limits::chunk_digest_bytes_per_second> budget_{};
  digest_budget<Limits::chunk_digest_bytes_per_second / 16> waste_budget_{};
};

}  // namespace tensorpull::detail
