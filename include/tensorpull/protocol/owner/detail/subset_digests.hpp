// The digests of named tensors.
#pragma once

#include <tensorpull/image/schema.hpp>
#include <tensorpull/protocol/owner/detail/digests.hpp>
#include <tensorpull/protocol/owner/detail/serve_book.hpp>
#include <tensorpull/protocol/owner/detail/subset.hpp>
#include <tensorpull/protocol/roles.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull::detail {

/// Computes digests of subsets, one at a time, within a budget. A digest that is begun belongs to the connection that
/// asked last for it, and ends when that is gone. Not thread-safe: the caller has the owner's lock, which is released
/// while bytes are hashed.
template <class Job, class Limits>
class subset_digests {
 public:
  /// Names that a request may have, and names if it asks for slices.
  static constexpr std::size_t most_names = Limits::control_frame_bytes / 32,
                               most_slices = most_names < 6 ? 1 : most_names / 6;

  /// `random()` gives unguessable 64-bit numbers; it is called twice.
  template <class Random>
  explicit subset_digests(Random& random) noexcept : key_{random(), random()} {}

  /// Goes on with an answer about tensors of `slot`, of which `r` is a recipient. `working`: everything may have
  /// changed meanwhile, and `answer` is not complete. `ready`: `answer` is complete, and `busy` if the budget is used
  /// up or another subset's digest is under way.
  template <class Book, class Lock>
  digest_state answer(Book book, Lock& lock, typename Book::peer& from, const frame& m, publication& slot,
                      recipient_record& r, std::span<byte_range> ranges, frame& answer) noexcept {
    const transaction_table& transactions = book.transactions;
    const std::uint32_t number = transactions.publications.index(slot);
    if (asker_ == from.number() && request_ == m.id && job_.key.generation == slot.generation &&
        job_.key.slot == number)
      return advance(book.transactions, lock);
    // The names are looked up only if they are remembered or there is a budget: that can cost as much as hashing a
    // small subset.
    const digest_key key{hash_of(key_, m.names, m.slices), m.names.size(), number, slot.generation, Job::whole_kind};
    const std::uint64_t* const digest = known_.find(key);
    if (digest == nullptr && job_.key != key && !may_begin(m.names.size(), transactions)) {
      put_off<Limits>(answer);
      return digest_state::ready;
    }
    const auto found = find_subset(*slot.image.schema, m.names, m.slices, ranges);
    if (!found) {
      answer.status = found.error() == errc::out_of_range ? status::out_of_range : status::bad_request;
      answer.offset = found.error().at;
      return digest_state::ready;
    }
    ranges = ranges.first(m.names.size());
    if (digest == nullptr) {
      if (job_.key != key) begin(key, *found, *slot.image.schema, ranges, m, transactions.now);
      asker_ = from.number();
      request_ = m.id;
      return advance(book.transactions, lock);
    }
    answer.kind = frame_kind::located;
    answer.nonce = r.nonce;
    answer.digest = r.subset_digest = *digest;
    answer.fingerprint = found->fingerprint;
    answer.ranges = ranges;
    r.subset = true;
    r.subset_end = 0;  // where the last byte that can be asked for ends
    for (std::size_t i = 0; i < ranges.size(); ++i)
      if (ranges[i].begin != ranges[i].end) r.subset_end = ranges[i].end;
    book.keep(from, r);
    return digest_state::ready;
  }
  /// Whether no digest is under way.
  bool idle() const noexcept { return job_.key.generation == 0; }
  /// A connection is gone. A digest that it has begun would wait for it; another that wants the same begins it anew.
  void forget(std::uint32_t connection) noexcept {
    if (connection == nobody || (asker_ != connection && asker_ != nobody)) return;
    asker_ = nobody;
    if (!job_.in_hand) job_.end();
  }

 private:
  static constexpr std::uint32_t nobody = 0;  // no connection has this number

  /// Whether another digest may begin now: none is under way, and the budget is not used up. Looking up a name costs as
  /// much as hashing some KiB.
  bool may_begin(std::size_t names, const transaction_table& transactions) noexcept {
    if (job_.in_hand || (!idle() && !transactions.publications.gone(job_.key)) || !budget_.left(transactions.now))
      return false;
    budget_.spend(names * 8192, transactions.now);
    return true;
  }
  void begin(const digest_key& key, const subset_choice& chosen, const image_schema& schema,
             std::span<const byte_range> ranges, const frame& asked, std::chrono::milliseconds now) noexcept {
    budget_.spend(chosen.bytes + 64 * chosen.runs, now);  // to find a run costs as much as to hash so many bytes
    job_.begin(key, chosen.bytes, false);
    sliced_ = !asked.slices.empty();
    count_ = 0;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const byte_range r = ranges[i];
      if (r.begin == r.end) continue;  // tensors without bytes are not hashed
      const std::size_t t = tensor_at(schema, r.begin - schema.header_bytes);
      if (!sliced_) tensors_[count_++] = static_cast<std::uint32_t>(t);
      else slices_[count_++] = {r.begin, r.end, runs_of_slice(schema.tensors[t], asked)};
    }
  }
  static byte_runs runs_of_slice(const tensor_entry& t, const frame& asked) noexcept {
    std::size_t i = 0;
    while (i + 1 < asked.names.size() && asked.names[i] != t.name) ++i;
    const index_range slice = asked.slices[i];
    const auto part = slice.all() ? optional<strided_range<>>() : bytes_of_slice(t, slice);
    return part ? part->runs : byte_runs{};
  }
  strided_range<> part_at(const image_schema& schema, std::size_t i) const noexcept {
    if (sliced_) return slices_[i];
    const tensor_entry& t = schema.tensors[tensors_[i]];
    return {schema.header_bytes + t.begin, schema.header_bytes + t.end, {}};
  }
  template <class Lock>
  digest_state advance(transaction_table& transactions, Lock& lock) noexcept {
    if (!job_.in_hand)
      hash_slice(job_, known_, transactions, lock, [&](const source_view& image) {
        std::byte memory[4096];
        return job_.advance(
            image, count_, [&](std::size_t i) { return part_at(*image.schema, i); },
            std::min(job_.left(), digest_slice_bytes), memory);
      });
    return digest_state::working;
  }

  siphash_key key_;  // of what recipients choose: see hash_of()
  Job job_{};
  // which tensors, or where slices of them lie: to find them by name again for each slice of the digest would cost more
  // than that
  union {
    std::uint32_t tensors_[most_names]{};
    strided_range<> slices_[most_slices];
  };
  bool sliced_ = false;
  std::size_t count_ = 0;
  std::uint32_t asker_ = nobody, request_ = 0;  // the connection that goes on with it, and its request
  digest_memory<8 * Limits::digest_jobs> known_{};
  digest_budget<Limits::subset_bytes_per_second> budget_{};
};

}  // namespace tensorpull::detail
