// A consumer between a transfer and the consumer under test. It makes that one slow, checks that the library keeps the
// consumer's contract, and asks the oracle when finish() is called.
#pragma once

#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/image/view.hpp>
#include <tensorpull/satellites/simulation/event_queue.hpp>
#include <tensorpull/testing/seeded_random.hpp>

#include <algorithm>

namespace tensorpull::testing::detail {

/// The observations of one transfer's consumer.
struct consumer_record {
  bool begun = false, finished = false, abandoned = false;
  const char* broken_rule = nullptr;  ///< what the library did against the consumer's contract
};

/// How slow a consumer is.
struct slowness {
  std::uint32_t pause_per_thousand = 0;  ///< how often it has no memory after a chunk
  std::uint64_t pause_us = 0;
  std::uint64_t most_per_prepare = ~std::uint64_t{0};
};

/// `Consumer` is constructed from the destination_view. `Judge`: judge(receipt, source_view) is called at the end of
/// finish().
template <consumer Consumer, class Judge>
class observed_consumer {
 public:
  static constexpr bool irrevocable = Consumer::irrevocable;

  observed_consumer(const destination_view& to, Judge judge, const virtual_clock& clock, seeded_random random,
                    const slowness& s)
      : inner_(to), view_(to), judge_(judge), clock_(clock), random_(random), slow_(s) {}

  std::uint64_t fingerprint() const noexcept { return inner_.fingerprint(); }
  const image_schema* schema() const noexcept { return inner_.schema(); }

  result<void> begin(const description& d) noexcept {
    if (seen_.begun) broke("begin() twice");
    seen_.begun = true;
    total_ = d.image_bytes;
    return inner_.begin(d);
  }
  prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    if (!seen_.begun || over()) broke("prepare() before begin() or after the end");
    if (offset != at_ || length > total_ - offset) broke("prepare() of other bytes than the next ones");
    if (clock_.now() < busy_until_) return {};
    const prepared p = inner_.prepare(offset, std::min(length, slow_.most_per_prepare), out);
    prepared_to_ = offset + p.bytes;
    return p;
  }
  result<void> commit(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    if (over()) broke("commit() after the end");
    if (offset != at_ || bytes.size() > prepared_to_ - at_) broke("commit() of bytes that were not prepared");
    at_ += bytes.size();
    return inner_.commit(offset, bytes);
  }
  result<void> chunk(std::uint64_t offset, std::uint64_t length) noexcept {
    if (over() || offset != chunk_ || offset + length != at_) broke("chunk() that is not what was committed");
    chunk_ = at_;
    if (slow_.pause_per_thousand > 0 && random_.chance(slow_.pause_per_thousand))
      busy_until_ = clock_.now() + 1 + random_.below(slow_.pause_us);
    return inner_.chunk(offset, length);
  }
  result<void> finish(const receipt& r) noexcept {
    if (!seen_.begun || over() || at_ != total_ || r.bytes != total_)
      broke("finish() before everything was there, or twice");
    const auto ok = inner_.finish(r);
    seen_.finished = ok.has_value();
    if (ok) judge_(r, view_);
    return ok;
  }
  void abandon(const error& e) noexcept {
    if (!seen_.begun || over()) broke("abandon() before begin(), twice, or after finish()");
    seen_.abandoned = true;
    inner_.abandon(e);
  }

  void rewind(std::uint64_t offset) noexcept
    requires requires(Consumer& c) { c.rewind(std::uint64_t{}); }
  {
    if (!seen_.begun || over() || offset != chunk_) broke("rewind() to another place than where the chunk began");
    at_ = prepared_to_ = offset;
    inner_.rewind(offset);
  }
  void confirmed() noexcept
    requires requires(Consumer& c) { c.confirmed(); }
  {
    if (!seen_.finished) broke("confirmed() before finish()");
    inner_.confirmed();
  }
  source_view read_back() const noexcept
    requires requires(const Consumer& c) { c.read_back(); }
  {
    return inner_.read_back();
  }
  /// Called if the first bytes have landed in an earlier process.
  void resumed(std::uint64_t offset) noexcept { at_ = chunk_ = prepared_to_ = offset; }

  const consumer_record& seen() const noexcept { return seen_; }
  std::uint64_t busy_until() const noexcept { return busy_until_; }
  Consumer& inner() noexcept { return inner_; }

 private:
  bool over() const noexcept { return seen_.finished || seen_.abandoned; }
  void broke(const char* rule) noexcept {
    if (seen_.broken_rule == nullptr) seen_.broken_rule = rule;
  }

  Consumer inner_;
  destination_view view_;
  Judge judge_;
  const virtual_clock& clock_;
  seeded_random random_;
  slowness slow_;
  consumer_record seen_;
  std::uint64_t total_ = 0, at_ = 0, chunk_ = 0, prepared_to_ = 0, busy_until_ = 0;
};

}  // namespace tensorpull::testing::detail
