// Everything that can go wrong between an owner and its recipients over datagrams, from seeds: 10,000 in an ordinary
// run, more with TENSORPULL_SIM_SEEDS. A failure prints its seed; TENSORPULL_SIM_FIRST=<seed> TENSORPULL_SIM_SEEDS=1
// runs it again.
#include "support/lossy_pair.hpp"

#include <tensorpull/satellites/simulation/detail/settlement_oracle.hpp>
#include <tensorpull/satellites/simulation/run_seeds.hpp>

#include <map>
#include <optional>

namespace datagrams_test {

using namespace test;
using std::chrono::milliseconds;
using tp::testing::seeded_random;

/// What happened in all runs.
struct totals {
  std::uint64_t completed = 0, failed = 0, restarts = 0, payload = 0, image = 0;
};

/// Lands in order only, sometimes has no memory, and asks the oracle in finish().
template <bool AnyOrder>
class judged {
 public:
  static constexpr bool irrevocable = false;
  static constexpr bool any_order = AnyOrder;

  judged(model& to, std::function<void()> finished, seeded_random random)
      : inner_(to.destination()), finished_(std::move(finished)), random_(random) {}
  std::uint64_t fingerprint() const noexcept { return inner_.fingerprint(); }
  const tp::image_schema* schema() const noexcept { return inner_.schema(); }
  tp::result<void> begin(const tp::description& d) noexcept { return inner_.begin(d); }
  tp::prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<byte_span> out) noexcept {
    if (!AnyOrder && offset != at_) broken = true;
    if (!AnyOrder && random_.chance(20)) return {};
    return inner_.prepare(offset, length, out);
  }
  tp::result<void> commit(std::uint64_t offset, const_byte_span bytes) noexcept {
    if (!AnyOrder && offset != at_) broken = true;
    at_ = offset + bytes.size();
    return inner_.commit(offset, bytes);
  }
  tp::result<void> chunk(std::uint64_t offset, std::uint64_t length) noexcept {
    if (offset != chunk_) broken = true;
    chunk_ = offset + length;
    return inner_.chunk(offset, length);
  }
  tp::result<void> finish(const tp::receipt& r) noexcept {
    finished_();
    return inner_.finish(r);
  }
  void abandon(const tp::error& e) noexcept { inner_.abandon(e); }
  tp::source_view read_back() const noexcept
    requires AnyOrder
  {
    return inner_.read_back();
  }
  bool broken = false;

 private:
  tp::land inner_;
  std::function<void()> finished_;
  seeded_random random_;
  std::uint64_t at_ = 0, chunk_ = 0;
};

model shaped(std::uint64_t floats) {
  model m;
  m.add("layers.0.weight", dtype::f32, {floats})
      .add("layers.0.bias", dtype::f32, {17})
      .add("step", dtype::i64, {})
      .add("mask", dtype::u8, {floats / 3});
  return std::move(m.ready());
}

class network {
 public:
  explicit network(std::uint64_t seed)
      : random_(seed), floats_(1 + random_.below(random_.chance(100) ? 20'000 : 3'000)) {
    link_.datagram_bytes = std::array<std::size_t, 4>{128, 576, 1200, 16384}[random_.below(4)];
    link_.loss = std::array{0.0, 0.01, 0.05, 0.05, 0.2}[random_.below(5)];
    link_.doubled = random_.chance(300) ? 0.05 : 0;
    link_.delay = microseconds(random_.below(random_.chance(200) ? 30'000 : 1'000));
    link_.jitter = random_.chance(400) ? microseconds(random_.below(2'000)) : 0us;
    faulty_ = random_.chance(600);
    for (std::uint64_t i = 0, n = 1 + random_.below(4); i < n; ++i)
      peers_.push_back(std::make_unique<peer>(i + 1, random_.fork(), floats_));
    for (auto& p : peers_) expected_.named.push_back({p->who});
    if (random_.chance(300)) expected_.counted = static_cast<std::uint32_t>(peers_.size()), expected_.named.clear();
    expected_.budgets.recipient_idle = 60'000ms;
    if (faulty_)
      for (std::uint64_t n = random_.below(4); n > 0; --n)
        faults_.emplace(now_ + microseconds(random_.below(200'000)), random_.below(5));
    publish(random_());
    for (auto& p : peers_) begin(*p, random_());
  }

  /// Runs it to its end; what is wrong, or nullptr.
  const char* run(totals& sum) {
    for (std::uint64_t steps = 0; !over(); ++steps) {
      if (steps == 3'000'000) return "it does not end";
      step();
      if (wrong_ != nullptr) return wrong_;
    }
    for (auto& p : peers_) {
      const auto how = p->outcome;
      if (!how) {
        const errc why = how.error().code;
        ++sum.failed;
        if (!faulty_) return "a transfer failed although nothing had happened";
        if (why != errc::stale_version && why != errc::cancelled && why != errc::unknown_reference &&
            why != errc::already_final && why != errc::withdrawn && why != errc::ended && why != errc::timed_out)
          return to_string(why).data();
      } else {
        ++sum.completed;
        if (how->outcome != tp::outcome::completed) return "a transfer completed without its digest";
      }
    }
    // nothing leaks, and everything settles
    for (auto& p : peers_) p->at_owner.reset(), p->end.reset();
    owner_->withdraw_all();
    settle();
    if (wrong_ == nullptr) wrong_ = oracle_.at_end(process_);
    if (pool_.available() != buffers) return "a buffer was not given back";
    if (!faulty_ && link_.loss <= 0.05 && link_.doubled == 0 && link_.jitter.count() == 0)
      sum.payload += sent_, sum.image += peers_.size() * peers_[0]->transfer_bytes;
    sum.restarts += restarts_;
    return wrong_;
  }

 private:
  static constexpr std::size_t buffers = 8, buffer_bytes = 8192;
  using owner_type = tp::owner<tp::xxhash_digest>;
  using end_type = tp::datagram_endpoint<tp::word_framing, tp::default_limits, owner_type, tp::ignore_messages>;
  using my_end = tp::datagram_endpoint<tp::word_framing, tp::default_limits, tp::no_owner, tp::ignore_messages>;
  using any_consumer = judged<true>;
  using ordered_consumer = judged<false>;
  template <class C>
  using pull = tp::datagram_transfer<C, tp::bytes_up_to<16'304>, tp::image_digest>;

  struct peer {
    peer(std::uint64_t n, seeded_random r, std::uint64_t floats)
        : who(n), random(r), target(shaped(floats)), ordered(random.chance(400)) {}
    std::uint64_t who;
    seeded_random random;
    model target;
    bool ordered;
    tp::no_owner none;
    tp::ignore_messages deaf;
    std::uint64_t memory[1088 / 8];
    tp::buffer_pool<> pool{std::as_writable_bytes(std::span(memory)), sizeof memory};
    std::unique_ptr<end_type> at_owner;
    std::unique_ptr<my_end> end;
    std::optional<any_consumer> any;
    std::optional<ordered_consumer> in_order;
    std::optional<pull<any_consumer>> any_pull;
    std::optional<pull<ordered_consumer>> ordered_pull;
    std::vector<std::uint64_t> hold;
    lossy_line up, down;
    std::uint64_t transfer_bytes = 0, landed = 0;
    microseconds moved{};
    std::uint32_t tries = 0;
    bool over = false;
    tp::result<tp::receipt> outcome = tp::failure(errc::timed_out);
  };

  template <class F>
  void with(peer& p, F f) {
    p.ordered ? f(*p.ordered_pull) : f(*p.any_pull);
  }
  bool over() const {
    return std::all_of(peers_.begin(), peers_.end(), [&](const auto& p) { return p->over; });
  }

  void publish(std::uint64_t content) {
    model m = shaped(floats_);
    m.fill(content);
    sources_.push_back(std::move(m));
    const model& now = sources_.back();
    version_ = version_of(now);
    if (!owner_->publish(now.source(), version_, true, id_, expected_.options())) wrong_ = "it could not be published";
    oracle_.published(process_, owner_->transaction_of(id_), version_, expected_);
  }
  void begin(peer& p, std::uint64_t number) {
    p.at_owner = p.at_owner ? std::move(p.at_owner)
                            : std::make_unique<end_type>(*owner_, pool_, deaf_, link_.datagram_bytes, random_());
    p.end.reset();
    p.any_pull.reset();
    p.ordered_pull.reset();
    p.end = std::make_unique<my_end>(p.none, p.pool, p.deaf, link_.datagram_bytes, number);
    const auto finished = [this, &p] {
      for (const model& m : sources_)
        if (p.target.bytes_of("layers.0.weight") == m.bytes_of("layers.0.weight") &&
            p.target.bytes_of("mask") == m.bytes_of("mask") && p.target.bytes_of("step") == m.bytes_of("step") &&
            p.target.bytes_of("layers.0.bias") == m.bytes_of("layers.0.bias"))
          return oracle_.holds(version_of(m), p.who);
      wrong_ = "a transfer completed with bytes that nobody published";
    };
    tp::pull_request r;
    r.ref = id_;
    r.recipient = {p.who};
    p.hold.resize(p.random.below(5) * link_.datagram_bytes / 8);
    if (p.ordered)
      p.in_order.emplace(p.target, finished, p.random.fork()),
          p.ordered_pull.emplace(*p.in_order, r, tp::bytes_up_to<16'304>{}, p.end->next_id());
    else
      p.any.emplace(p.target, finished, p.random.fork()),
          p.any_pull.emplace(*p.any, r, tp::bytes_up_to<16'304>{}, p.end->next_id());
    with(p, [&](auto& t) { t.fits(link_.datagram_bytes), t.hold(std::as_writable_bytes(std::span(p.hold))); });
    p.end->begin_pull();
    p.moved = now_;
    p.landed = 0;
  }

  template <class End, class Transfer>
  void send(End& end, Transfer& t, lossy_line& line) {
    alignas(8) static std::byte scratch[2 * 16384 + 4096];
    for (tp::datagram_plan plan;;) {
      end.plan_datagram(t, plan, scratch, now_);
      if (plan.bytes == 0) return;
      if (plan.bytes > link_.datagram_bytes) wrong_ = "a datagram is too long";
      const bool taken = !random_.chance(5);
      datagram d(plan.bytes / 8);
      for (std::size_t i = 0, at = 0; i < plan.span_count; at += plan.spans[i++].size())
        std::memcpy(reinterpret_cast<std::byte*>(d.data()) + at, plan.spans[i].data(), plan.spans[i].size());
      end.sent(t, plan, taken);
      if (!taken) return;  // the link is full
      const std::size_t copies = chance(link_.doubled) ? 2 : 1;
      for (std::size_t i = 0; i < copies; ++i)
        if (!chance(link_.loss))
          line.on_its_way.emplace(now_ + link_.delay +
                                      microseconds(link_.jitter.count() > 0
                                                       ? random_.below(static_cast<std::uint64_t>(link_.jitter.count()))
                                                       : 0),
                                  std::pair(d, plan.bytes));
    }
  }
  bool chance(double p) { return p > 0 && random_.chance(static_cast<std::uint32_t>(p * 1000)); }

  void step() {
    tp::no_transfer idle;
    microseconds next = faults_.empty() ? now_ + 1000ms : std::min(now_ + 1000ms, faults_.begin()->first);
    const auto wake = [&](microseconds in) {
      if (in != microseconds::max()) next = std::min(next, now_ + std::max(in, 1us));
    };
    for (auto& p : peers_) {
      with(*p, [&](auto& t) {
        if (!p->over || !p->end->output_idle()) send(*p->end, t, p->up), wake(p->end->next_time(t, now_));
      });
      send(*p->at_owner, idle, p->down);
      wake(p->at_owner->next_time(idle, now_));
      for (const lossy_line* l : {&p->up, &p->down})
        if (!l->on_its_way.empty()) next = std::min(next, l->on_its_way.begin()->first);
    }
    now_ = std::max(next, now_);
    owner_->advance(std::chrono::duration_cast<milliseconds>(now_));
    for (auto& p : peers_) {
      deliver(p->up, [&](auto bytes) { (void)p->at_owner->received(idle, bytes, now_); });
      with(*p, [&](auto& t) {
        deliver(p->down, [&](auto bytes) { (void)p->end->received(t, bytes, now_); });
        if (!p->over) look(*p, t);
      });
    }
    settle();
    while (!faults_.empty() && faults_.begin()->first <= now_) {
      const std::uint64_t what = faults_.begin()->second;
      faults_.erase(faults_.begin());
      happens(what);
    }
  }
  template <class Take>
  void deliver(lossy_line& line, Take take) {
    while (!line.on_its_way.empty() && line.on_its_way.begin()->first <= now_) {
      const auto d = std::move(line.on_its_way.begin()->second);
      line.on_its_way.erase(line.on_its_way.begin());
      take(std::span(reinterpret_cast<const std::byte*>(d.first.data()), d.second));
    }
  }
  /// A driver's part: time-outs, a busy owner, the end.
  template <class Transfer>
  void look(peer& p, Transfer& t) {
    if (t.landed_bytes() != p.landed) p.landed = t.landed_bytes(), p.moved = now_;
    if (p.in_order && p.in_order->broken) wrong_ = "a consumer got its bytes in another order";
    if (t.ended()) {
      p.over = true;
      p.outcome = t.outcome();
      p.transfer_bytes = t.total_bytes();
      p.end->end_pull(t);
      if (const auto bye = t.farewell()) (void)p.end->send_control(*bye);
    } else if (now_ - p.moved > 20'000ms || t.pause().count() > 0) {
      p.moved = now_;
      if (++p.tries > 20) t.fail({errc::timed_out, 0, 0, {}});
      else t.restart();
    }
  }
  void happens(std::uint64_t what) {
    peer& p = *peers_[random_.below(peers_.size())];
    ++restarts_;
    switch (what) {
      case 0:  // the owner is started again with the same content
      case 1:  // or with another
        for (auto& each : peers_) each->at_owner.reset();
        owner_->withdraw_all();
        settle();
        owner_.reset();
        storage_ = std::make_unique<tp::owner_storage<16, 64>>();
        make_owner();
        ++process_;
        for (auto& each : peers_)
          each->at_owner = std::make_unique<end_type>(*owner_, pool_, deaf_, link_.datagram_bytes, random_());
        return publish_again(what == 1);
      case 2:  // the owner has forgotten a peer
        p.at_owner = std::make_unique<end_type>(*owner_, pool_, deaf_, link_.datagram_bytes, random_());
        return;
      case 3:  // a recipient is started again
        if (p.over) return;
        return begin(p, random_());
      default:  // a recipient gives up
        with(p, [&](auto& t) { t.fail({errc::cancelled, 0, 0, {}}); });
    }
  }
  void publish_again(bool other) {
    if (other) return publish(random_());
    const model& now = sources_.back();
    if (!owner_->publish(now.source(), version_, true, id_, expected_.options())) wrong_ = "it could not be published";
    oracle_.published(process_, owner_->transaction_of(id_), version_, expected_);
  }
  void settle() {
    tp::settlement s;
    tp::callback<const tp::settlement&> tell;
    for (tp::transaction_id t; (t = owner_->next_settled(s, tell));) {
      sent_ += s.counts.bytes_sent;
      if (const char* const wrong = oracle_.told(process_, s)) wrong_ = wrong;
      if (owner_->returned(t)) owner_->released(t);
    }
  }
  void make_owner() {
    owner_.reset(new owner_type(*storage_, [this] { return random_(); }));
  }

  seeded_random random_;
  std::uint64_t floats_;
  link_conditions link_;
  bool faulty_ = false;
  microseconds now_{1'000'000};
  std::multimap<microseconds, std::uint64_t> faults_;
  std::unique_ptr<tp::owner_storage<16, 64>> storage_ = std::make_unique<tp::owner_storage<16, 64>>();
  std::uint64_t memory_[buffers * buffer_bytes / 8];
  tp::buffer_pool<> pool_{std::as_writable_bytes(std::span(memory_)), buffer_bytes};
  tp::ignore_messages deaf_;
  std::unique_ptr<owner_type> owner_{new owner_type(*storage_, [this] { return random_(); })};
  std::deque<model> sources_;
  std::uint64_t version_ = 0, sent_ = 0, restarts_ = 0;
  std::uint32_t process_ = 0;
  tp::ref_id id_{1, 2};
  tp::testing::detail::expectation expected_;
  tp::testing::detail::settlement_oracle oracle_;
  std::vector<std::unique_ptr<peer>> peers_;
  const char* wrong_ = nullptr;
};

TEST(Datagrams, Every_seed_completes_exactly_or_fails_by_name_and_the_owner_tells_the_truth) {
  const auto seeds = tp::testing::seed_range::from_environment(10'000);
  totals sum;
  for (std::uint64_t i = 0, failures = 0; i < seeds.count && failures < 3; ++i) {
    const auto one = std::make_unique<network>(seeds.first + i);
    if (const char* const wrong = one->run(sum))
      ++failures, ADD_FAILURE() << "seed " << seeds.first + i << ": " << wrong;
  }
  std::printf("%llu completed, %llu failed, %llu faults, payload %.3f of the images at up to 5 %% loss each way\n",
              static_cast<unsigned long long>(sum.completed), static_cast<unsigned long long>(sum.failed),
              static_cast<unsigned long long>(sum.restarts),
              static_cast<double>(sum.payload) / static_cast<double>(std::max<std::uint64_t>(sum.image, 1)));
  EXPECT_LE(static_cast<double>(sum.payload), 1.15 * static_cast<double>(sum.image));
}

}  // namespace datagrams_test
