// Random sequences of calls on a publisher, which tells what has settled from within the calls, against the same model
// as tests/protocol/call_sequences: 1,000 seeds, in proportion more with TENSORPULL_SIM_SEEDS (20,000 is usual).
#include "support/call_sequences.hpp"

#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/tensor_list.hpp>
#include <tensorpull/testing/seed_range.hpp>
#include <tensorpull/transports/publisher.hpp>

namespace publisher_sequences_test {

using namespace test;
using namespace test::sequences;

struct small_tables : tp::default_limits {
  static constexpr std::size_t references = 5;
};
using net = tp::pipeline<tp::tensor_list, tp::fixed_bytes<4096>, tp::loopback, small_tables>;

/// A publisher whose models are the caller's, or are handed over and have to be released once.
template <std::size_t Recipients>
class through_publisher {
 public:
  using publisher = tp::publisher<net::parts, tp::no_lock, Recipients>;
  using owner_type = typename publisher::owner_type;
  static constexpr bool has_clock = false;

  explicit through_publisher(generator& dice) : dice_(dice), publisher_(std::make_unique<publisher>()) {}
  ~through_publisher() { EXPECT_EQ(*kept_, 0) << "what was kept is not released"; }

  owner_type& machine() { return publisher_->machine(); }
  static std::size_t records() { return Recipients; }
  auto open(const tp::transaction_options& o) { return publisher_->open_transaction(o); }
  tp::result<void> publish(const tp::source_view& image, std::uint64_t version, tp::ref_id id,
                           const tp::transaction_options& o) {
    tp::publish_options p;
    p.recipients = o.recipients, p.named = o.named, p.least = o.least, p.budgets = o.budgets;
    p.settled = o.settled, p.progress = o.progress, p.progress_interval = o.progress_interval;
    return add(image, version, id, p);
  }
  tp::result<void> join(const tp::source_view& image, std::uint64_t version, tp::ref_id id, tp::transaction_id in) {
    tp::publish_options p;
    p.transaction = in;
    return add(image, version, id, p);
  }
  tp::result<void> publish_all(std::vector<tp::transaction_image>& images, const tp::transaction_options& o) {
    const auto done = publisher_->add_images(images, o, kept());
    return done ? tp::result<void>{} : tp::failure(done.error());
  }
  void seal(tp::transaction_id id) { publisher_->seal(id); }
  auto withdraw(tp::ref_id id) { return publisher_->withdraw({id, 0, 0}); }
  auto lose(tp::ref_id id) { return publisher_->lose({id, 0, 0}); }
  void advance(std::chrono::milliseconds) { publisher_->tick(); }
  void deliver() {
    if (dice_.below(3) == 0) publisher_->tick();
    publisher_->deliver();
  }
  void end() { publisher_.reset(); }

 private:
  /// Counts how many there are.
  struct counted {
    explicit counted(std::shared_ptr<int> n) : alive(std::move(n)) { ++*alive; }
    counted(counted&& other) noexcept : alive(std::move(other.alive)) {}
    ~counted() {
      if (alive) --*alive;
    }
    std::shared_ptr<int> alive;
  };
  tp::unique_any kept() {
    tp::unique_any keep;
    if (dice_.below(2) == 0) {
      EXPECT_NE(keep.keep(counted(kept_)), nullptr);
    }
    return keep;
  }
  tp::result<void> add(const tp::source_view& image, std::uint64_t version, tp::ref_id id, tp::publish_options& p) {
    p.id = id;
    p.version = dice_.below(2) == 0 ? version : 0;
    const auto done = publisher_->add_image(image, p, kept());
    if (!done) return tp::failure(done.error());
    EXPECT_EQ(done->version, version);
    return {};
  }

  generator& dice_;
  std::shared_ptr<int> kept_ = std::make_shared<int>(0);
  std::unique_ptr<publisher> publisher_;
};

template <std::size_t Recipients>
void run() {
  const auto seeds = tp::testing::seed_range::from_environment(20'000);
  sequences::run<through_publisher<Recipients>>(seeds.first, std::max<std::uint64_t>(1, seeds.count / 40), seeds.trace,
                                                Recipients < 10);
}
TEST(CallSequences, What_a_publisher_says_is_true_whatever_is_called_on_it) { run<30>(); }
TEST(CallSequences, What_a_publisher_with_a_full_table_says_is_true_whatever_is_called_on_it) { run<4>(); }

}  // namespace publisher_sequences_test
