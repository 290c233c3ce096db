// Random sequences of calls on an owner, against a model of what must be true: 1,000 seeds, in proportion more with
// TENSORPULL_SIM_SEEDS (20,000 is usual). A failure prints its seed; TENSORPULL_SIM_FIRST=<seed> TENSORPULL_SIM_SEEDS=1
// runs it again and prints its steps.
#include "support/call_sequences.hpp"

#include <tensorpull/testing/seed_range.hpp>

namespace call_sequences_test {

using namespace test;
using namespace test::sequences;

/// An owner with small tables and a clock of its own, driven as every driver does.
class owner_alone {
 public:
  using owner_type = tp::owner<tp::xxhash_digest>;
  static constexpr bool has_clock = true;

  explicit owner_alone(generator& dice)
      : slots_(3 + dice.below(4)), transactions_(slots_.size() + 2), records_(3 + dice.below(chance_of_many(dice))),
        buckets_(records_.size()), own_(dice() ^ dice()),
        owner_(tp::owner_memory{slots_, transactions_, records_, buckets_}, [this] { return own_(); }) {}

  owner_type& machine() { return owner_; }
  std::size_t records() const { return records_.size(); }
  auto open(const tp::transaction_options& o) { return owner_.open_transaction(o); }
  auto publish(const tp::source_view& image, std::uint64_t version, tp::ref_id id, const tp::transaction_options& o) {
    return owner_.publish(image, version, true, id, o);
  }
  auto join(const tp::source_view& image, std::uint64_t version, tp::ref_id id, tp::transaction_id in) {
    return owner_.publish(image, version, true, id, in);
  }
  tp::result<void> publish_all(std::vector<tp::transaction_image>& images, const tp::transaction_options& o) {
    const auto t = owner_.open_transaction(o);
    if (!t) return tp::failure(t.error());
    const auto done = owner_.publish_all(images, true, *t);
    if (done) owner_.seal(*t);
    else owner_.cancel(*t);
    return done;
  }
  void seal(tp::transaction_id id) { owner_.seal(id); }
  auto withdraw(tp::ref_id id) { return owner_.withdraw(id); }
  auto lose(tp::ref_id id) { return owner_.lose(id); }
  void advance(std::chrono::milliseconds now) { owner_.advance(now); }
  void deliver() {
    tp::progress_event e;
    tp::settlement s;
    tp::callback<const tp::progress_event&> tell;
    tp::callback<const tp::settlement&> end;
    for (bool more = true; more;) {
      while (const auto t = owner_.next_event(e, tell)) {
        tell(e);
        if (owner_.returned(t)) owner_.released(t);
      }
      const auto t = owner_.next_settled(s, end);
      more = bool(t);
      if (!more) continue;
      end(s);
      if (owner_.returned(t)) owner_.released(t);
    }
  }
  void end() {
    owner_.withdraw_all();
    deliver();
  }

 private:
  static std::uint64_t chance_of_many(generator& dice) { return dice.below(2) == 0 ? 5 : 30; }

  std::vector<tp::publication> slots_;
  std::vector<tp::transaction> transactions_;
  std::vector<tp::recipient_record> records_;
  std::vector<std::uint32_t> buckets_;
  generator own_;  // so that no sequence is another one if an owner draws more numbers
  owner_type owner_;
};

TEST(CallSequences, An_owners_statements_are_true_whatever_is_called_on_it) {
  const auto seeds = tp::testing::seed_range::from_environment(20'000);
  sequences::run<owner_alone>(seeds.first, std::max<std::uint64_t>(1, seeds.count / 20), seeds.trace);
}

}  // namespace call_sequences_test
