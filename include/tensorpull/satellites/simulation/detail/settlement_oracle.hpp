// The oracle of transactions: it knows which recipients each transaction expects and which of them really hold its
// bytes, and checks the settlement that the owner delivers.
#pragma once

#include <tensorpull/protocol/owner/transaction.hpp>
#include <tensorpull/testing/seeded_random.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tensorpull::testing::detail {

/// The recipients that one publication expects; owns their names.
struct expectation {
  std::vector<recipient_id> named;
  std::uint32_t counted = 0, least = 0;
  /// the owner's table is small: if the number is unknown, it may count a recipient twice that it has forgotten
  bool forgetful = false;
  transaction_budgets budgets{};

  /// Draws them. `stable`: recipients that keep their names. `healed`: there are no more faults, so the budgets are
  /// long enough for every recipient.
  void draw(seeded_random& random, std::span<const recipient_id> stable, std::size_t recipients, bool healed) {
    const std::uint64_t how = random.below(10);
    if (how < 3) counted = static_cast<std::uint32_t>(1 + random.below(recipients));
    if (how >= 3 && how < 7) {
      for (const recipient_id& r : stable)
        if (random.chance(800)) named.push_back(r);
      if (random.chance(150)) named.push_back({random() | 1});  // a recipient that never appears
    }
    const std::uint64_t expected = named.empty() ? counted : named.size();
    if (random.chance(300)) least = static_cast<std::uint32_t>(1 + random.below(std::max<std::uint64_t>(expected, 1)));
    const auto budget = [&](std::uint32_t often, std::uint64_t ms) {
      return std::chrono::milliseconds(random.chance(often) ? 1 + random.below(ms) + (healed ? 5'000 : 0) : 0);
    };
    budgets.acquire = budget(300, 300);
    budgets.recipient_idle = budget(500, 800);
    budgets.transaction_idle = budget(300, 800);
  }
  /// Borrows the names.
  transaction_options options() const noexcept {
    transaction_options o;
    o.named = named;
    o.recipients = named.empty() ? counted : 0;
    o.least = least;
    o.budgets = budgets;
    return o;
  }
};

/// It knows nothing of the owner's tables, only what was published and which consumers have finished. Their bytes were
/// compared at that moment.
class settlement_oracle {
 public:
  /// `process`: which run of the owner: after a crash it has forgotten its transactions, and numbers them from the
  /// start again. A recipient that holds these bytes from an earlier run may confirm them now.
  void published(std::uint32_t process, transaction_id id, std::uint64_t version, const expectation& e) {
    std::vector<std::uint64_t> complete;
    for (const entry& before : entries_)
      if (before.version == version) complete = before.complete;
    entries_.push_back({process, id, version, e, std::move(complete)});
  }

  /// Notes that a recipient holds exactly these bytes. It has a number even if it does not send it.
  void holds(std::uint64_t version, std::uint64_t who) {
    for (auto e = entries_.rbegin(); e != entries_.rend(); ++e)
      if (e->version == version) {
        if (std::find(e->complete.begin(), e->complete.end(), who) == e->complete.end()) e->complete.push_back(who);
        return;
      }
  }

  /// The fault of a settlement; nullptr: it has none.
  const char* told(std::uint32_t process, const settlement& s) {
    entry* const e = find(process, s.id);
    if (e == nullptr) return "a settlement of what was never published";
    if (std::exchange(e->settled, true)) return "a settlement was told twice";
    e->bytes_sent = s.counts.bytes_sent;
    const bool known = !e->expected.named.empty() || e->expected.counted > 0;
    if (s.verdict == verdict::open) return "a settlement without a verdict";
    if (s.verdict == verdict::completed && !known) return "settled as completed, and nobody knew for how many";
    if (s.verdict == verdict::completed && missing(*e) > 0)
      return "settled as completed, and somebody does not hold the bytes";
    if (s.verdict == verdict::quorum && s.counts.completed + s.counts.completed_unverified < e->expected.least)
      return "settled with a quorum that was not there";
    if (const char* const wrong = rules(*e, s)) return wrong;
    if (s.verdict == verdict::uncertified && known) return "settled as uncertified, and it was known for whom";
    if (known && s.counts.final() < s.expected) return "settled, and of somebody nothing is said";
    return counts(*e, s.counts);
  }
  /// Checks the counts of what was published last; at any time.
  const char* audit(const publication_status& now) const {
    if (entries_.empty()) return nullptr;
    const entry& e = entries_.back();
    if (e.settled && now.bytes_sent != e.bytes_sent) return "served after it had settled";
    return counts(e, now);
  }
  /// Checks, when everything has settled or was withdrawn, that each settlement was delivered.
  const char* at_end(std::uint32_t process) const {
    for (const entry& e : entries_)
      if (e.process == process && !e.settled) return "a settlement was never told";
    return nullptr;
  }

 private:
  struct entry {
    std::uint32_t process;
    transaction_id id;
    std::uint64_t version;
    expectation expected;
    std::vector<std::uint64_t> complete;
    std::uint64_t bytes_sent = 0;
    bool settled = false;
  };

  entry* find(std::uint32_t process, transaction_id id) noexcept {
    for (entry& e : entries_)
      if (e.process == process && e.id == id) return &e;
    return nullptr;
  }
  /// Checks that follow from how a transaction was opened, whichever recipients took part.
  static const char* rules(const entry& e, const settlement& s) noexcept {
    const publication_status& c = s.counts;
    const std::uint32_t confirmed = c.completed + c.completed_unverified;
    if (s.references != 1) return "settled with references that it did not have";
    if (s.expected != (e.expected.named.empty() ? e.expected.counted : e.expected.named.size()))
      return "settled for another number of recipients";
    if (!e.expected.named.empty() && c.final() != s.expected) return "of names that were expected, not each ended once";
    if (c.vanished > 0 && e.expected.budgets.recipient_idle <= std::chrono::milliseconds::zero())
      return "vanished without a budget";
    if (s.expected != 0 && confirmed >= s.expected && s.verdict != verdict::completed &&
        s.verdict != verdict::completed_unverified)
      return "everybody confirmed, and that is not said";
    if (e.expected.least != 0 && confirmed >= e.expected.least && s.verdict > verdict::quorum)
      return "enough confirmed, and that is not said";
    return nullptr;
  }
  static std::size_t holders(const entry& e) noexcept {
    if (e.expected.named.empty()) return e.complete.size();
    return static_cast<std::size_t>(
        std::count_if(e.expected.named.begin(), e.expected.named.end(), [&](recipient_id who) {
          return std::find(e.complete.begin(), e.complete.end(), who.value) != e.complete.end();
        }));
  }
  static std::size_t missing(const entry& e) noexcept {
    const std::size_t expected = e.expected.named.empty() ? e.expected.counted : e.expected.named.size();
    return expected - std::min(expected, holders(e));
  }
  static const char* counts(const entry& e, const publication_status& s) noexcept {
    const bool twice = e.expected.forgetful && e.expected.named.empty() && e.expected.counted == 0 &&
                       e.expected.least == 0;
    return !twice && s.completed > holders(e) ? "the owner counts more completions than there were" : nullptr;
  }

  std::vector<entry> entries_;
};

}  // namespace tensorpull::testing::detail
