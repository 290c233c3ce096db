// C7: 45 rounds of a changing number of recipients, of which some never confirm, some abort and some vanish, leave
// nothing behind, and so do publications that come and go. TENSORPULL_WHOLE_SCHEDULE=1: with all participants of the
// rounds, and 1,000 publications instead of 200.
#include "crowd.hpp"
#include "support/allocation_counter.hpp"
#include "support/clocks.hpp"
#include "support/process_entries.hpp"
#include "support/sanitizers.hpp"
#include "support/waiting.hpp"
#include "support/whole_schedule.hpp"

#include <algorithm>
#include <string>

namespace flatness_test {

using namespace test;
using net = raw_net<mlp, tp::tcp>;
using crowd = crowd_of<net, mlp>;

/// A quarter of the participants of the 45 rounds in examples/participants.txt.
constexpr std::array<std::uint32_t, 45> participants{27, 28, 23, 23, 29, 25, 24, 23, 27, 25, 30, 25, 29, 28, 22,
                                                     25, 22, 24, 28, 20, 30, 21, 23, 30, 28, 27, 28, 24, 28, 27,
                                                     30, 23, 24, 25, 24, 26, 26, 30, 22, 25, 26, 26, 26, 22, 27};
constexpr std::size_t baseline_round = 6;  // counted from 1
constexpr auto idle = 20s;  ///< after which a recipient counts as vanished

/// What is there between two rounds.
struct footing {
  live_heap heap;
  std::size_t files = 0, threads = 0, connections = 0, kept_models = 0, unsettled = 0;
};
/// What is more than it was; empty if all is as before.
std::string growth(const footing& before, const footing& now) {
  std::string found;
  const auto compare = [&](const char* what, auto b, auto n) {
    if (n != b) found += std::string(what) + " " + std::to_string(b) + " -> " + std::to_string(n) + "; ";
  };
  compare("blocks", before.heap.blocks, now.heap.blocks);
  compare("bytes", before.heap.bytes, now.heap.bytes);
  compare("descriptors", before.files, now.files);
  compare("threads", before.threads, now.threads);
  compare("connections", before.connections, now.connections);
  compare("models", before.kept_models, now.kept_models);
  compare("unsettled", before.unsettled, now.unsettled);
  return found;
}
/// The first round after the baseline that differs from it, and in what.
std::string growth(const std::vector<footing>& rounds) {
  for (std::size_t i = baseline_round; i < rounds.size(); ++i)
    if (const std::string g = growth(rounds[baseline_round - 1], rounds[i]); !g.empty())
      return "round " + std::to_string(i + 1) + ": " + g;
  return {};
}

/// Counts the models that an owner keeps.
struct counted_model {
  mlp model;
  std::size_t* alive;
  counted_model(const mlp& m, std::size_t& n) : model(m), alive(&n) { ++n; }
  counted_model(const counted_model&) = delete;
  ~counted_model() { --*alive; }
};

template <class Handler>
class schedule {
 public:
  explicit schedule(Handler& h) : owner_(owner_io_, h, options()), port_(*owner_.listen(any_port)) {}

  std::vector<footing> run(std::size_t rounds) {
    std::vector<footing> all(rounds);
    for (std::size_t i = 0; i < rounds && !testing::Test::HasFailure(); ++i) {
      round(participants[i] * (whole_schedule() ? 4 : 1), i);
      all[i] = {heap_now(), descriptors(), threads(), owner_.connections(), alive_, unsettled_};
    }
    return all;
  }

 private:
  static tp::host_options options() {
    tp::host_options o;
    o.reserved_connections = 128;
    return o;
  }
  template <class Done>
  bool until(crowd& all, Done done) {
    return eventually("a round goes on", [&] {
      while (owner_io_.poll() + all.io.poll() > 0 && !done()) continue;
      return done();
    });
  }

  void round(std::uint32_t n, std::size_t number) {
    const std::uint32_t silent = (n + 5) / 10, vanishing = (n + 10) / 20, aborting = (n + 10) / 20,
                        honest = n - silent - vanishing - aborting;
    tp::settlement settled;
    std::size_t settlements = 0;
    auto tell = [&](const tp::settlement& s) { settled = s, ++settlements; };
    tp::transaction_options expect;
    expect.recipients = n;
    expect.least = honest;
    expect.budgets.recipient_idle = idle;
    expect.settled = tell;
    auto& published = owner_.published();
    const auto transaction = published.open_transaction(expect);
    ASSERT_TRUE(transaction) << number;
    ++unsettled_;
    auto kept = std::make_shared<counted_model>(*source_, alive_);
    std::shared_ptr<mlp> model(kept, &kept->model);
    kept.reset();
    const auto ref = published.add_tensors(std::move(model), {.transaction = *transaction});
    ASSERT_TRUE(ref) << number;
    published.seal(*transaction);
    {
      crowd all(*mine_);
      all.ref = *ref;
      std::vector<raw_peer> peers;
      constexpr std::uint64_t image = tp::raw_tensors<mlp>::schema().image_bytes;
      for (std::uint32_t i = 0; i < silent + vanishing; ++i) {
        raw_peer& p = peers.emplace_back(port_);
        EXPECT_TRUE(p.say(request(tp::frame_kind::describe, 1, ref->id, 0, 0, {1000 + i})));
        // the silent ones take everything and never say so; of the others the owner has more to send than a socket
        // holds when they go
        EXPECT_TRUE(p.say(request(tp::frame_kind::pull, 2, ref->id, 0, static_cast<std::uint32_t>(image))));
      }
      for (std::uint32_t i = 0; i < aborting; ++i) all.add(port_, crowd::quitter);
      for (std::uint32_t i = 0; i < honest; ++i) all.add(port_, 0);
      std::vector<std::uint64_t> heard(peers.size());
      byte_vector piece(64 * 1024);
      const auto hear = [&] {
        for (std::size_t i = 0; i < peers.size(); ++i) {
          if (i < silent) heard[i] += read_some(peers[i].stream(), piece).bytes;
          else if (i >= silent && heard[i] == 0 && owner_.published().status_of(*ref)->acquired >= n)
            heard[i] = 1, peers[i].reset();
        }
      };
      const auto none_is_under_way = [&] {
        hear();
        const auto status = published.status_of(*ref);
        return all.ended == honest + aborting && status->completed == honest && status->cancelled == aborting &&
               std::all_of(heard.begin(), heard.begin() + silent, [](std::uint64_t bytes) { return bytes >= image; }) &&
               std::all_of(heard.begin() + silent, heard.end(), [](std::uint64_t acted) { return acted != 0; });
      };
      EXPECT_TRUE(until(all, none_is_under_way)) << number << ": " << all.ended << " ended";
      published.tick();
      pass_time(idle);
      published.tick();
      EXPECT_TRUE(until(all, [&] { return settlements > 0; })) << number;
      EXPECT_EQ(std::tuple(all.completed, all.gave_up, all.other), std::tuple(honest, aborting, 0u)) << number;
      peers.clear();
      all.host.stop();
      EXPECT_TRUE(until(all, [&] { return all.host.connections() == 0 && owner_.connections() == 0; })) << number;
    }
    EXPECT_EQ(settlements, 1u) << number;
    unsettled_ -= std::min<std::size_t>(unsettled_, settlements);
    const auto& c = settled.counts;
    EXPECT_EQ(std::tuple(c.acquired, c.completed, c.cancelled, c.vanished, c.failed),
              std::tuple(n, honest, aborting, silent + vanishing, 0u))
        << number;
    EXPECT_EQ(settled.verdict, tp::verdict::quorum) << number;
    EXPECT_TRUE(same(*source_, *mine_)) << number;
    EXPECT_TRUE(published.withdraw(*ref));
  }

  std::unique_ptr<mlp> source_ = random_model<mlp>(1), mine_ = blank<mlp>();
  std::size_t alive_ = 0, unsettled_ = 0;
  tp::event_loop owner_io_;
  net::host<Handler, tp::no_consumer> owner_;
  std::uint16_t port_;
};

TEST(Flatness, C7_forty_five_rounds_with_recipients_that_end_badly_return_to_the_baseline_of_round_6) {
  tp::detail::silent_handler handler;
  const auto rounds = schedule(handler).run(participants.size());
  EXPECT_EQ(growth(rounds), "");
  EXPECT_EQ(std::tuple(rounds.back().connections, rounds.back().kept_models, rounds.back().unsettled),
            std::tuple(0u, 0u, 0u));
}

TEST(Flatness, C7_publications_that_come_and_go_with_a_hundred_recipients_each_leave_memory_as_it_was) {
  using tiny_net = raw_net<tiny, tp::tcp>;
  const int publications = whole_schedule() ? 1000 : 200;
  constexpr std::uint32_t recipients = 100;
  const auto mine = blank<tiny>();
  tp::detail::silent_handler handler;
  tp::host_options options;
  options.reserved_connections = 128;
  tp::event_loop io;
  tiny_net::host<tp::detail::silent_handler, tp::no_consumer> owner(io, handler, options);
  const std::uint16_t port = *owner.listen(any_port);
  live_heap heap;
  std::size_t resident = 0, files = 0;
  for (int i = 0; i < publications && !HasFailure(); ++i) {
    auto model = random_model<tiny>(static_cast<std::uint64_t>(i));
    const auto source = *model;
    const auto ref = owner.published().add_tensors(std::move(model), {.recipients = recipients});
    ASSERT_TRUE(ref) << i;
    {
      crowd_of<tiny_net, tiny> all(*mine);
      all.ref = *ref;
      for (std::uint32_t k = 0; k < recipients; ++k) all.add(port, 0);
      const auto end = steady_clock::now() + 60s;
      const auto until = [&](auto done) {
        while (!done() && steady_clock::now() < end) io.poll(), all.io.poll();
        return done();
      };
      EXPECT_TRUE(until([&] { return all.ended == recipients; })) << i;
      EXPECT_EQ(all.completed, recipients) << i;
      EXPECT_TRUE(same(*mine, source)) << i;
      all.host.stop();
      EXPECT_TRUE(until([&] { return all.host.connections() == 0 && owner.connections() == 0; })) << i;
    }
    EXPECT_EQ(owner.published().settlement_of(*ref)->verdict, tp::verdict::completed) << i;
    EXPECT_TRUE(owner.published().withdraw(*ref)) << i;
    if (i == 5) heap = heap_now(), resident = resident_bytes(), files = descriptors();
  }
  EXPECT_EQ(heap_now(), heap);
  EXPECT_EQ(descriptors(), files);
#if !defined(TENSORPULL_TEST_SANITIZED)  // which keeps freed memory
  EXPECT_LE(resident_bytes(), resident + resident / 20);
#endif
}

/// Remembers something for the largest cohort so far, as a cache that is never emptied does.
struct caches_by_cohort : tp::detail::silent_handler {
  std::vector<std::unique_ptr<std::array<char, 256>>> slots;
  std::size_t open = 0;
  template <class C>
  void connected(C&) {
    if (++open > slots.size()) slots.push_back(std::make_unique<std::array<char, 256>>());
  }
  template <class C>
  void closed(C&, const tp::error&) noexcept {
    --open;
  }
};
TEST(Flatness, C7_the_same_check_finds_a_cache_that_grows_with_the_cohort) {
  caches_by_cohort handler;
  const auto rounds = schedule(handler).run(12);
  const std::string found = growth(rounds);
  EXPECT_NE(found.find("blocks"), std::string::npos) << found;
  EXPECT_NE(found.find("bytes"), std::string::npos) << found;
  EXPECT_EQ(found.find("descriptors"), std::string::npos) << found;
}

}  // namespace flatness_test
