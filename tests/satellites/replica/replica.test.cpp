#include "support/allocation_counter.hpp"
#include "transports/network.hpp"

#include <tensorpull/satellites/replica/replica_owner.hpp>

#include <array>
#include <atomic>
#include <functional>
#include <optional>
#include <vector>

namespace replica_test {

using namespace test;
using namespace tensorpull;

/// Some of the tensors of mlp.
struct part_of_mlp {
  dense hidden;
};

}  // namespace replica_test

BOOST_HANA_ADAPT_STRUCT(replica_test::part_of_mlp, hidden);

namespace replica_test {

constexpr ref_id shared{21, 22};

template <class Model, class Chunks = fixed_bytes<64_KiB>, class... More>
using net = pipeline<raw_tensors<Model>, Chunks, tcp, More...>;

/// An owner that coordinates, on a thread of its own.
template <class Net>
struct coordinator_at_work {
  typename Net::downloader owner;
  reference ref{};
  std::optional<serving> on{};
  template <class Model>
  coordinator_at_work(const Model& model, const publish_options& options, std::string_view listen = any_port)
      : owner(opened(listen)) {
    const auto published = owner.add_tensors(model, options);
    EXPECT_TRUE(succeeded(published));
    if (published) ref = *published;
    on.emplace(owner);
  }
  static typename Net::downloader opened(std::string_view listen) {
    auto o = Net::downloader::open({.listen = listen});
    EXPECT_TRUE(o);
    return std::move(*o);
  }
};
/// A replica, on a thread of its own.
template <class Net>
struct replica_at_work {
  replica_of<Net> owner;
  reference ref{};
  std::optional<serving> on{};
  template <class Model>
  replica_at_work(const Model& model, std::uint16_t coordinator, const replica_options& options = {},
                  const publish_options& publishing = {.id = shared})
      : owner(opened(local(coordinator), options)) {
    const auto published = owner.add_tensors(model, publishing);
    EXPECT_TRUE(succeeded(published));
    if (published) ref = *published;
    on.emplace(owner);
  }
  static replica_of<Net> opened(const std::string& coordinator, const replica_options& options) {
    auto o = replica_of<Net>::open(any_port, coordinator, options);
    EXPECT_TRUE(o);
    return std::move(*o);
  }
  std::string address() const { return local(owner.port()); }
};

/// A coordinator, a replica of its model, and a recipient of that.
template <class Model, class Net = net<Model>>
struct replicated {
  explicit replicated(std::uint32_t recipients = 1, const replica_options& options = {})
      : coordinator(*model, {.recipients = recipients, .id = shared}),
        replica(*model, coordinator.owner.port(), options) {}
  auto pull(const pull_options& options = {}) {
    return Net::download_tensors(replica.address(), coordinator.ref, *mine, options);
  }
  const std::unique_ptr<Model> model = random_model<Model>(1), mine = blank<Model>();
  coordinator_at_work<Net> coordinator;
  replica_at_work<Net> replica;
};

/// Connects to one of several places after the other, as a balancer does that takes turns.
struct in_turns {
  std::vector<std::string> places;
  std::atomic<std::size_t>* next;
  result<posix_stream> connect(std::chrono::milliseconds timeout, const stop_token& stop) const noexcept {
    for (std::size_t tried = 0;; ++tried) {
      auto s = tcp::connect(places[next->fetch_add(1) % places.size()], timeout, stop);
      if (s || tried + 1 >= places.size()) return s;
    }
  }
};

/// Calls something once, when a share of the bytes is there.
struct at_share {
  std::uint64_t bytes;
  std::function<void()> call;
  void operator()(const progress_event& e) {
    if (e.bytes_done >= bytes && call) std::exchange(call, nullptr)();
  }
};

TEST(Replica, Gives_all_but_the_last_chunk_and_the_coordinator_settles) {
  const auto model = random_model<large>(1);
  coordinator_at_work<net<large>> coordinator(*model, {.recipients = 2, .id = shared});
  replica_at_work<net<large>> replica(*model, coordinator.owner.port());
  for (int i = 0; i < 2; ++i) {
    auto mine = blank<large>();
    const auto done = net<large>::download_tensors(replica.address(), coordinator.ref, *mine);
    ASSERT_TRUE(confirmed(done)) << done.error().at;
    EXPECT_TRUE(same(*mine, *model));
  }
  coordinator.on.reset();
  replica.on.reset();
  const auto how = coordinator.owner.settlement_of(coordinator.ref);
  EXPECT_EQ(how->verdict, verdict::completed);
  EXPECT_EQ(how->counts.completed, 2u);
  EXPECT_LE(how->counts.bytes_sent, 2 * 64_KiB);
  EXPECT_GE(how->counts.bytes_sent, 2u);
  const auto counts = replica.owner.counts();
  EXPECT_EQ(counts.own, 2 * (sizeof(large) / 64_KiB));  // the header makes one chunk more, which is the coordinator's
  EXPECT_EQ(counts.own_bytes, 2 * (sizeof(large) / 64_KiB) * 64_KiB);
  EXPECT_EQ(counts.passed_on, 2 * 3u);  // describe, the last chunk, confirm
  EXPECT_EQ(counts.broken, 0u);
}

TEST(Replica, One_chunk_is_the_coordinators) {
  replicated<tiny> all;
  const auto done = all.pull();
  ASSERT_TRUE(confirmed(done));
  EXPECT_TRUE(same(*all.mine, *all.model));
  all.replica.on.reset();
  EXPECT_EQ(all.replica.owner.counts().own, 0u);
}

TEST(Replica, Digests_of_chunks_are_its_own) {
  using checked = net<large, fixed_bytes<64_KiB>, chunk_and_image_digest>;
  replicated<large, checked> all;
  const auto done = all.pull();
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*all.mine, *all.model));
  all.replica.on.reset();
  EXPECT_EQ(all.replica.owner.counts().own, sizeof(large) / 64_KiB);
}

TEST(Replica, With_other_content_gives_nothing) {
  const auto model = random_model<mlp>(4), other = random_model<mlp>(5);
  coordinator_at_work<net<mlp>> coordinator(*model, {.recipients = 1, .id = shared});
  replica_at_work<net<mlp>> replica(*other, coordinator.owner.port());
  auto mine = blank<mlp>();
  const auto done = net<mlp>::download_tensors(replica.address(), coordinator.ref, *mine);
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*mine, *model));
  replica.on.reset();
  EXPECT_EQ(replica.owner.counts().own, 0u);
}

TEST(Replica, That_knows_nothing_passes_everything_on) {
  const auto model = random_model<mlp>(6);
  coordinator_at_work<net<mlp>> coordinator(*model, {.recipients = 1, .id = shared});
  replica_at_work<net<mlp>> replica(*model, coordinator.owner.port(), {}, {.id = {1, 1}});
  auto mine = blank<mlp>();
  const auto done = net<mlp>::download_tensors(replica.address(), coordinator.ref, *mine);
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*mine, *model));
  const auto unknown = net<mlp>::download_tensors(replica.address(), reference{{3, 3}, 0, 0}, *mine);
  EXPECT_EQ(code_of(unknown), errc::unknown_reference);
}

TEST(Replica, One_that_is_killed_costs_a_connection) {
  const auto model = random_model<large>(7);
  coordinator_at_work<net<large>> coordinator(*model, {.recipients = 1, .id = shared});
  std::optional<replica_at_work<net<large>>> first;
  first.emplace(*model, coordinator.owner.port());
  replica_at_work<net<large>> second(*model, coordinator.owner.port());
  std::atomic<std::size_t> next{0};
  const in_turns balancer{{first->address(), second.address()}, &next};
  at_share kill{sizeof(large) / 2, [&] { first.reset(); }};
  auto mine = blank<large>();
  const auto done = net<large>::download_tensors(balancer, coordinator.ref, *mine,
                                                 {.progress = kill, .progress_interval = 0ms});
  ASSERT_TRUE(confirmed(done));
  EXPECT_TRUE(same(*mine, *model));
  coordinator.on.reset();
  second.on.reset();
  EXPECT_EQ(coordinator.owner.settlement_of(coordinator.ref)->verdict, verdict::completed);
  EXPECT_EQ(coordinator.owner.settlement_of(coordinator.ref)->counts.completed, 1u);
  EXPECT_GT(second.owner.counts().own, 0u);
  EXPECT_LT(second.owner.counts().own, sizeof(large) / 64_KiB * 3 / 4) << "what had landed was fetched again";
}

TEST(Replica, Without_a_coordinator_it_is_owner_lost) {
  const auto model = random_model<large>(8);
  std::optional<coordinator_at_work<net<large>>> coordinator;
  coordinator.emplace(*model, publish_options{.recipients = 1, .id = shared});
  const reference ref = coordinator->ref;
  verdict how = verdict::open;
  const auto settled = [&](const settlement& s) { how = s.verdict; };
  replica_at_work<net<large>> replica(*model, coordinator->owner.port(), {.gone = 500ms},
                                      {.settled = settled, .id = shared});
  auto mine = blank<large>();
  resume_cursor cursor;
  at_share kill{sizeof(large) / 2, [&] { coordinator.reset(); }};
  const auto lost = net<large>::download_tensors(replica.address(), ref, *mine,
                                                 {.cursor = &cursor, .progress = kill, .progress_interval = 0ms});
  EXPECT_EQ(code_of(lost), errc::owner_lost);
  EXPECT_GE(cursor.offset, sizeof(large) / 2);
  replica.on.reset();
  EXPECT_FALSE(replica.owner.run(until_settled(replica.ref), within(ample_time)));
  EXPECT_EQ(how, verdict::owner_lost);
}

TEST(Replica, A_coordinator_may_be_waited_for_without_end) {
  const auto model = random_model<mlp>(8);
  const own_port nobody;
  replica_at_work<net<mlp>> replica(*model, nobody, {.gone = std::chrono::milliseconds::max()});
  auto mine = blank<mlp>();
  const auto waits = net<mlp>::download_tensors(replica.address(), replica.ref, *mine,
                                                {.per_request_timeout = 1500ms, .retry = {.retries = 0}});
  EXPECT_EQ(code_of(waits), errc::timed_out);
  replica.on.reset();
  EXPECT_FALSE(replica.owner.coordinator_lost());
  EXPECT_FALSE(replica.owner.settled(replica.ref));
}

TEST(Replica, Without_a_coordinator_whatever_it_has_published_is_owner_lost) {
  using one = net<mlp>;
  const auto model = random_model<mlp>(8);
  std::optional<coordinator_at_work<one>> coordinator;
  coordinator.emplace(*model, publish_options{.recipients = 1, .id = shared});
  std::vector<verdict> how;
  std::vector<std::uint32_t> expected;
  const auto settled = [&](const settlement& s) { how.push_back(s.verdict), expected.push_back(s.expected); };
  auto replica = replica_at_work<one>::opened(local(coordinator->owner.port()), {.gone = 300ms});
  const recipient_id names[] = {{5}, {6}};
  const transaction_options options{.recipients = 2, .named = names, .settled = settled};
  std::array images{transaction_image{raw_tensors<mlp>::source(*model), {shared, 0, 0}},
                    transaction_image{raw_tensors<mlp>::source(*model), {}}};
  ASSERT_TRUE(replica.add_images(images, options));
  const auto in = replica.open_transaction(options);
  ASSERT_TRUE(in);
  const auto joined = replica.add_tensors(*model, {.transaction = *in});
  ASSERT_TRUE(joined);
  replica.seal(*in);
  coordinator.reset();
  EXPECT_TRUE(runs_until("both have settled", replica, [&] { return how.size() == 2; }));
  EXPECT_TRUE(replica.coordinator_lost());
  for (const reference& ref : {images[0].as, images[1].as, *joined}) EXPECT_TRUE(replica.settled(ref));
  EXPECT_EQ(how, std::vector(2, verdict::owner_lost));
  EXPECT_EQ(expected, std::vector<std::uint32_t>(2, 0)) << "a replica waits for nobody";
}

TEST(Replica, A_coordinator_that_comes_back_in_time_goes_on) {
  const auto model = random_model<large>(9);
  std::optional<coordinator_at_work<net<large>>> coordinator;
  coordinator.emplace(*model, publish_options{.recipients = 1, .id = shared});
  const reference ref = coordinator->ref;
  const std::uint16_t port = coordinator->owner.port();
  replica_at_work<net<large>> replica(*model, port, {.gone = 60s});
  auto mine = blank<large>();
  at_share restart{sizeof(large) / 2, [&] {
                     coordinator.reset();
                     coordinator.emplace(*model, publish_options{.recipients = 1, .id = shared}, local(port));
                   }};
  const auto done = net<large>::download_tensors(replica.address(), ref, *mine,
                                                 {.progress = restart, .progress_interval = 0ms});
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*mine, *model));
  coordinator->on.reset();
  EXPECT_EQ(coordinator->owner.settlement_of(ref)->verdict, verdict::completed);
}

TEST(Replica, A_subset_ends_at_the_coordinator) {
  const auto model = random_model<mlp>(10);
  coordinator_at_work<net<mlp>> coordinator(*model, {.recipients = 1, .id = shared});
  replica_at_work<net<mlp>> replica(*model, coordinator.owner.port());
  auto mine = blank<part_of_mlp>();
  using part = net<part_of_mlp>;
  const std::array<std::string_view, 2> names{"hidden.w", "hidden.b"};
  const auto done = part::download_tensors(replica.address(), coordinator.ref, *mine, {.tensors = names});
  ASSERT_TRUE(confirmed(done));
  EXPECT_TRUE(same(mine->hidden, model->hidden));
  coordinator.on.reset();
  replica.on.reset();
  EXPECT_EQ(coordinator.owner.settlement_of(coordinator.ref)->verdict, verdict::completed);
  EXPECT_GE(replica.owner.counts().own, 5u);
}

/// Some columns of mlp's matrix.
struct columns_of_dense {
  float w[128][49];
  float b[128];
};
struct columns_of_mlp {
  columns_of_dense hidden;
};

}  // namespace replica_test

BOOST_HANA_ADAPT_STRUCT(replica_test::columns_of_dense, w, b);
BOOST_HANA_ADAPT_STRUCT(replica_test::columns_of_mlp, hidden);

namespace replica_test {

TEST(Replica, A_slice_of_a_later_dimension_ends_at_the_coordinator) {
  const auto model = random_model<mlp>(10);
  coordinator_at_work<net<mlp>> coordinator(*model, {.recipients = 1, .id = shared});
  replica_at_work<net<mlp>> replica(*model, coordinator.owner.port());
  auto mine = blank<columns_of_mlp>();
  const std::array<tensor_slice, 1> columns{{{"hidden.w", 49, 98, 1}}};
  using part = net<columns_of_mlp, fixed_bytes<4_KiB>>;
  const auto done = part::download_tensors(replica.address(), coordinator.ref, *mine, {.slices = columns});
  ASSERT_TRUE(confirmed(done));
  for (std::size_t row = 0; row < 128; ++row)
    EXPECT_EQ(std::memcmp(mine->hidden.w[row], model->hidden.w[row] + 49, sizeof mine->hidden.w[row]), 0) << row;
  EXPECT_EQ(std::memcmp(mine->hidden.b, model->hidden.b, sizeof mine->hidden.b), 0);
  coordinator.on.reset();
  replica.on.reset();
  EXPECT_EQ(replica.owner.counts().passed_on, 4u) << "the description, the place, the last chunk, the confirmation";
  EXPECT_EQ(coordinator.owner.settlement_of(coordinator.ref)->verdict, verdict::completed);
  EXPECT_GE(replica.owner.counts().own, 5u);
}

TEST(Replica, A_long_pull_shows_the_coordinator_signs_of_life) {
  const auto model = random_model<large>(11);
  publish_options expects{.recipients = 1, .id = shared};
  expects.budgets.recipient_idle = 1s;
  coordinator_at_work<net<large>> coordinator(*model, expects);
  replica_at_work<net<large>> replica(*model, coordinator.owner.port(), {.sign_of_life = 100ms});
  auto mine = blank<large>();
  // 192 chunks: three times the budget
  const auto slowly = [](const progress_event&) { be_slow(15ms); };
  const auto done = net<large>::download_tensors(replica.address(), coordinator.ref, *mine,
                                                 {.progress = slowly, .progress_interval = 0ms});
  ASSERT_TRUE(confirmed(done));
  coordinator.on.reset();
  const auto how = coordinator.owner.settlement_of(coordinator.ref);
  EXPECT_EQ(how->verdict, verdict::completed);
  EXPECT_EQ(how->counts.lost, 0u);
}

TEST(Replica, A_chunk_allocates_nothing) {
  replicated<large> all(0);
  const auto pull = [&]<class Net>() {
    const allocation_watch watch;
    const auto done = Net::download_tensors(all.replica.address(), all.coordinator.ref, *all.mine);
    EXPECT_TRUE(succeeded(done));
    return watch.count();
  };
  pull.template operator()<net<large>>();
  const auto few = pull.template operator()<net<large, fixed_bytes<1_MiB>>>(),
             many = pull.template operator()<net<large, fixed_bytes<8_KiB>>>();
  EXPECT_LE(many, few + 8) << few;  // 1,537 chunks, and 13
}

TEST(Replica, A_recipient_that_breaks_the_protocol_hurts_nobody_else) {
  replicated<large> all;
  std::vector<std::unique_ptr<raw_peer>> peers;
  const auto say = [&](std::string_view text) {
    peers.push_back(std::make_unique<raw_peer>(all.replica.owner.port()));
    peers.back()->say(text);
  };
  at_share disturb{sizeof(large) / 4, [&] {
                     say(std::string(4096, '\xff'));
                     say(std::string(4096, '\0'));
                     say("GET / HTTP/1.1\r\n\r\n");
                     say({});  // says nothing
                   }};
  const auto done = all.pull({.progress = disturb, .progress_interval = 0ms});
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*all.mine, *all.model));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(peers[i]->hear_end()) << i;
  all.replica.on.reset();
  EXPECT_EQ(all.replica.owner.counts().broken, 3u);
}

TEST(Replica, One_that_says_nothing_loses_its_place) {
  replicated<tiny> all(1, {.max_connections = 1, .budgets = {.accept = 300ms}});
  raw_peer silent(all.replica.owner.port());
  // waits in the queue meanwhile
  const auto done = all.pull();
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(silent.hear_end());
  all.replica.on.reset();
  EXPECT_EQ(all.replica.owner.counts().expired, 1u);
}

}  // namespace replica_test
