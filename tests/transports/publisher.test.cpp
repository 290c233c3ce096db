// The owner role on a host: what is kept how long, and when budgets begin.
#include "network.hpp"
#include "support/frames.hpp"

#include <tensorpull/transports/host_budget.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

namespace publisher_test {

using namespace test;
using net = tp::pipeline<tp::loopback, tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>>;

TEST(Publisher, Keeps_each_new_version_that_takes_the_place_of_another_while_every_slot_is_in_use) {
  const auto owner = std::make_unique<net::downloader>();
  std::vector<tp::reference> refs;
  std::weak_ptr<mlp> newest;
  const auto add = [&](tp::ref_id id) {
    std::shared_ptr<mlp> m = random_model<mlp>(refs.size() + 1);
    newest = m;
    return owner->add_tensors(std::move(m), {.id = id});
  };
  for (;;) {
    const auto ref = add({});
    if (!ref) break;
    refs.push_back(*ref);
  }
  EXPECT_TRUE(newest.expired()) << "what could not be published is not kept";
  ASSERT_FALSE(refs.empty());
  for (int i = 0; i < 3; ++i) {
    const auto again = add(refs[0].id);
    ASSERT_TRUE(again);
    EXPECT_FALSE(newest.expired());
    const auto mine = blank<mlp>();
    EXPECT_TRUE(net::download_tensors(*owner, *again, *mine));
  }
  const auto before = newest;
  ASSERT_TRUE(add(refs[0].id));
  EXPECT_TRUE(before.expired());
}

TEST(Publisher, What_is_kept_for_one_of_several_references_stays_until_their_transaction_has_settled) {
  const auto owner = std::make_unique<net::downloader>();
  const auto in = *owner->open_transaction({.recipients = 1});
  std::shared_ptr<mlp> one = random_model<mlp>(1), two = random_model<mlp>(2), alone = random_model<mlp>(3);
  const std::weak_ptr<mlp> first = one, second = two, other = alone;
  const auto a = *owner->add_tensors(std::move(one), {.transaction = in});
  const auto b = *owner->add_tensors(std::move(two), {.transaction = in});
  const auto c = *owner->add_tensors(std::move(alone));
  owner->seal(in);
  ASSERT_TRUE(owner->withdraw(a));
  ASSERT_TRUE(owner->withdraw(c));
  EXPECT_TRUE(other.expired()) << "one on its own settles by that";
  EXPECT_FALSE(first.expired()) << "the callback that tells the end comes before";
  EXPECT_FALSE(second.expired());
  ASSERT_TRUE(owner->withdraw(b));
  EXPECT_TRUE(first.expired());
  EXPECT_TRUE(second.expired());
}

TEST(Publisher, Takes_a_version_that_is_known_and_recipients_notice_if_it_is_of_other_bytes) {
  const auto owner = std::make_unique<net::downloader>();
  const auto source = random_model<mlp>(1);
  const auto first = owner->add_tensors(*source);
  ASSERT_TRUE(first);
  const auto second = owner->add_tensors(*source, {.version = first->version});
  ASSERT_TRUE(second);
  EXPECT_NE(second->id, first->id);
  EXPECT_EQ(second->version, first->version);
  const auto mine = blank<mlp>();
  ASSERT_TRUE(net::download_tensors(*owner, *second, *mine));
  EXPECT_TRUE(same(*mine, *source));

  const auto wrong = owner->add_tensors(*source, {.version = first->version ^ 1});
  ASSERT_TRUE(wrong);
  EXPECT_EQ(wrong->version, first->version ^ 1);
  const auto done = net::download_tensors(*owner, *wrong, *blank<mlp>(), {.retry = {.retries = 0}});
  EXPECT_EQ(code_of(done), errc::digest_mismatch);
}

TEST(Publisher, A_reference_with_a_version_means_that_one_although_another_has_taken_its_place) {
  const auto owner = std::make_unique<net::downloader>();
  const auto one = random_model<mlp>(1), two = random_model<mlp>(2);
  const auto first = *owner->add_tensors(*one, {.recipients = 2}), any = tp::reference{first.id, 0, 0};
  const auto mine = blank<mlp>();
  ASSERT_TRUE(net::download_tensors(*owner, first, *mine));
  const auto second = *owner->add_tensors(*two, {.recipients = 1, .id = first.id});
  EXPECT_EQ(owner->status_of(first)->completed, 1u);
  EXPECT_EQ(owner->status_of(second)->completed, 0u);
  EXPECT_EQ(owner->status_of(any)->completed, 0u);
  EXPECT_TRUE(owner->settled(first));
  EXPECT_FALSE(owner->settled(second));
  EXPECT_EQ(owner->settlement_of(first)->counts.completed, 1u);
  EXPECT_EQ(owner->settlement_of(second)->verdict, tp::verdict::open);
  EXPECT_TRUE(owner->withdraw(first)) << "nothing reads it any more";
  EXPECT_EQ(code_of(owner->withdraw({first.id, first.version ^ second.version, 0})), errc::unknown_reference);
  EXPECT_FALSE(owner->settled(second));
  ASSERT_TRUE(net::download_tensors(*owner, second, *mine));
  EXPECT_TRUE(same(*mine, *two));
  EXPECT_TRUE(owner->settled(any));
}

TEST(Publisher, The_recipients_of_a_reference_with_a_version_are_those_of_that_version) {
  const auto owner = std::make_unique<net::downloader>();
  const auto one = random_model<mlp>(1), two = random_model<mlp>(2);
  const auto mine = blank<mlp>();
  const tp::recipient_id ada{7}, bob{8};
  const auto in = *owner->open_transaction({.recipients = 2});  // goes on with its second reference
  const auto first = *owner->add_tensors(*one, {.transaction = in});
  const auto sibling = *owner->add_tensors(*two, {.transaction = in});
  owner->seal(in);
  ASSERT_TRUE(net::download_tensors(*owner, first, *mine, {.recipient = ada}));
  ASSERT_TRUE(net::download_tensors(*owner, sibling, *mine, {.recipient = bob}));
  const std::array named{ada};
  const auto second = *owner->add_tensors(*two, {.named = named, .id = first.id});
  const tp::reference any{first.id, 0, 0}, nothing{first.id, first.version ^ second.version, 0};

  ASSERT_TRUE(owner->recipient_of(first, ada));
  EXPECT_EQ(owner->recipient_of(first, ada)->version, first.version);
  EXPECT_EQ(owner->recipient_of(first, ada)->state, tp::recipient_state::completed);
  for (const auto& ref : {second, any}) {
    EXPECT_EQ(owner->recipient_of(ref, ada)->version, second.version);
    EXPECT_EQ(owner->recipient_of(ref, ada)->state, tp::recipient_state::unseen);
  }
  EXPECT_EQ(code_of(owner->recipient_of(nothing, ada)), errc::unknown_reference) << "as status_of() says";
  std::array<tp::recipient_record, 8> out;
  for (const auto& ref : {first, second, any}) {
    ASSERT_EQ(owner->recipients_of(ref, out), 1u) << "bob has asked for another reference of the transaction";
    EXPECT_EQ(out[0].version, ref.version != 0 ? ref.version : second.version);
  }
  EXPECT_EQ(owner->recipients_of(nothing, out), 0u);
}

TEST(Publisher, T7_budgets_begin_with_publishing_and_not_with_the_clock) {
  const auto owner = std::make_unique<net::downloader>();
  const auto source = random_model<mlp>(1);
  const std::array who{tp::recipient_id{5}};
  const auto ref = owner->add_tensors(*source, {.named = who, .budgets = {.acquire = 1min, .transaction_idle = 1min}});
  ASSERT_TRUE(ref);
  owner->tick();
  EXPECT_FALSE(owner->settled(*ref)) << "nothing has passed yet";
}

TEST(Publisher, A_callback_may_publish_and_withdraw) {
  const auto owner = std::make_unique<net::downloader>();
  tp::reference next{};
  auto settled = [&](const tp::settlement&) {
    if (const auto r = owner->add_tensors(std::shared_ptr<mlp>(random_model<mlp>(2)))) next = *r;
  };
  const auto ref = owner->add_tensors(std::shared_ptr<mlp>(random_model<mlp>(1)),
                                      {.recipients = 1, .settled = settled});
  ASSERT_TRUE(ref);
  ASSERT_TRUE(owner->withdraw(*ref));
  const auto mine = blank<mlp>();
  EXPECT_TRUE(net::download_tensors(*owner, next, *mine));
}

/// A model that says when it is released.
struct counted_release {
  int* released;
  void operator()(mlp* m) const {
    ++*released;
    delete m;
  }
};
struct ends {
  std::vector<tp::settlement> told;
  int released = 0;
  std::unique_ptr<mlp, counted_release> model(std::uint64_t seed) {
    return {random_model<mlp>(seed).release(), counted_release{&released}};
  }
  void operator()(const tp::settlement& s) {
    EXPECT_EQ(released, 0) << "told before the models are released";
    told.push_back(s);
  }
};

TEST(Shutdown, Of_an_owner_in_one_process_settles_what_is_open_once) {
  ends all;
  {
    const auto owner = std::make_unique<net::downloader>();
    const auto t = *owner->open_transaction({.recipients = 2, .least = 1, .settled = all});
    const auto a = owner->add_tensors(all.model(1), {.transaction = t}),
               b = owner->add_tensors(all.model(2), {.transaction = t});
    ASSERT_TRUE(a && b);
    const auto mine = blank<mlp>();
    const auto me = tp::recipient_named("me");
    ASSERT_TRUE(net::download_tensors(*owner, *a, *mine, {.recipient = me}));
    ASSERT_TRUE(net::download_tensors(*owner, *b, *mine, {.recipient = me}));
    EXPECT_TRUE(all.told.empty()) << "it is not sealed";
  }
  ASSERT_EQ(all.told.size(), 1u);
  EXPECT_EQ(all.told[0].verdict, tp::verdict::quorum);
  EXPECT_EQ(all.told[0].references, 2u);
  EXPECT_EQ(all.told[0].counts.completed, 1u);
  EXPECT_EQ(all.told[0].counts.absent, 1u);
  EXPECT_EQ(all.released, 2);
}

TEST(Shutdown, Of_an_owner_that_has_settled_says_nothing_more) {
  ends all;
  {
    const auto owner = std::make_unique<net::downloader>();
    const auto ref = owner->add_tensors(all.model(1), {.recipients = 1, .settled = all});
    const auto mine = blank<mlp>();
    ASSERT_TRUE(net::download_tensors(*owner, *ref, *mine));
    EXPECT_EQ(all.told.size(), 1u);
  }
  EXPECT_EQ(all.told.size(), 1u);
  EXPECT_EQ(all.released, 1);
}

template <class Net>
void expect_shutdown_in_the_middle() {
  ends all;
  {
    auto owner = Net::downloader::open();
    ASSERT_TRUE(owner);
    const auto ref = owner->add_tensors(all.model(1), {.recipients = 2, .settled = all});
    ASSERT_TRUE(ref);
    const auto mine = blank<mlp>();
    std::optional<serving> server(std::in_place, *owner, Net::parts::transport::threads ? 3 : 1);
    ASSERT_TRUE(Net::download_tensors(local(owner->port()), *ref, *mine));
    raw_peer second(owner->port());
    tp::frame describe;
    describe.kind = tp::frame_kind::describe;
    describe.ref = ref->id;
    ASSERT_TRUE(second.say(encode(describe).bytes()));
    ASSERT_GE(second.hear(24).size(), 24u) << "it is under way, and will not come to its end";
    server.reset();
    EXPECT_TRUE(all.told.empty());
  }
  ASSERT_EQ(all.told.size(), 1u);
  EXPECT_EQ(all.told[0].verdict, tp::verdict::withdrawn);
  EXPECT_EQ(all.told[0].counts.completed, 1u);
  EXPECT_EQ(all.told[0].counts.unfinished, 1u);
  EXPECT_EQ(all.released, 1);
}
TEST(Shutdown, Of_a_host_in_the_middle_of_a_transfer_settles_once) {
  expect_shutdown_in_the_middle<tp::pipeline<tp::tcp, tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>>>();
}
TEST(Shutdown, Of_a_host_on_threads_in_the_middle_of_a_transfer_settles_once) {
  expect_shutdown_in_the_middle<tp::pipeline<tp::tcp_on_threads, tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>>>();
}

TEST(Shutdown, Of_a_session_settles_what_it_published_once) {
  using over_tcp = tp::pipeline<tp::tcp, tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>>;
  ends all;
  auto listener = tp::tcp_listener::open(any_port);
  ASSERT_TRUE(listener);
  raw_peer peer(listener->port());
  {
    auto session = over_tcp::session::over(*listener->accept(10s));
    ASSERT_TRUE(session);
    ASSERT_TRUE(session->add_tensors(all.model(1), {.recipients = 1, .settled = all}));
  }
  ASSERT_EQ(all.told.size(), 1u);
  EXPECT_EQ(all.told[0].verdict, tp::verdict::withdrawn);
  EXPECT_EQ(all.told[0].counts.absent, 1u);
  EXPECT_EQ(all.released, 1);
}

/// Withdraws what it receives, in the middle.
template <class Owner>
struct withdrawing : tp::land {
  Owner& owner;
  tp::reference ref;
  withdrawing(mlp& to, Owner& o, const tp::reference& r)
      : tp::land(tp::raw_tensors<mlp>::destination(to)), owner(o), ref(r) {}
  tp::result<void> chunk(std::uint64_t offset, std::uint64_t) noexcept {
    if (offset == 64_KiB) {
      EXPECT_TRUE(owner.withdraw(ref, 9));
    }
    return {};
  }
};
TEST(Publisher, A_withdrawal_reaches_who_is_in_the_middle_with_its_reason_and_not_by_a_time_out) {
  using threaded = tp::pipeline<tp::tcp_on_threads, tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>>;
  auto owner = *threaded::downloader::open();
  const serving run(owner);
  const auto ref = *owner.add_tensors(std::shared_ptr<mlp>(random_model<mlp>(1)));
  const auto mine = blank<mlp>();
  withdrawing to(*mine, owner, ref);
  const auto done = threaded::pull(local(owner.port()), ref, to, {.per_request_timeout = 3600s, .window = 1});
  ASSERT_EQ(code_of(done), errc::withdrawn);
  EXPECT_EQ(done.error().system, 9);
}

TEST(ConnectionBudgets, The_longest_times_never_pass) {
  constexpr auto never = std::chrono::milliseconds::max();
  const tp::connection_budgets budgets{.accept = never, .stall = never, .idle = never, .frame = never};
  const auto start = steady_clock::now();
  for (const bool owing : {false, true})
    for (const bool heard : {false, true}) {
      tp::detail::budget_watch watch(start);
      for (const auto later : {0ms, 1ms, 1'000'000ms})
        EXPECT_FALSE(watch.over(budgets, start + later, {.bytes = 1, .heard = heard, .long_frame = 1, .owing = owing}))
            << owing << heard;
    }
}

TEST(ConnectionBudgets, Those_that_have_shown_nothing_for_a_second_make_room_and_sixty_four_at_a_time) {
  const tp::connection_budgets budgets{};
  const auto start = steady_clock::now();
  tp::detail::budget_watch watch(start);
  const auto ends = [&](std::chrono::milliseconds later, const tp::detail::connection_activity& a) {
    tp::detail::room_maker room;
    return room.ends(watch, start + later, a);
  };
  EXPECT_FALSE(ends(5000ms, {})) << "nobody has looked at it yet";
  EXPECT_FALSE(watch.over(budgets, start, {}));
  EXPECT_FALSE(ends(999ms, {}));
  EXPECT_TRUE(ends(1000ms, {}));
  EXPECT_TRUE(ends(1000ms, {.bytes = 1, .owing = true})) << "bytes show nothing";
  EXPECT_FALSE(ends(1000ms, {.heard = 1}));
  EXPECT_FALSE(ends(1000ms, {.trusted = true}));
  tp::detail::room_maker room;
  int ended = 0;
  for (int i = 0; i < 100; ++i) ended += room.ends(watch, start + 1000ms, {});
  EXPECT_EQ(ended, 64);
}

TEST(ConnectionBudgets, An_address_loses_at_once_all_that_have_shown_nothing_above_its_share) {
  const auto start = steady_clock::now();
  tp::detail::budget_watch watch(start);
  EXPECT_FALSE(watch.over({}, start, {}));
  constexpr std::uint8_t one = 7, other = 9;
  tp::detail::room_maker room(50);
  for (int i = 0; i < 1000; ++i) room.counts({}, one);
  for (int i = 0; i < 40; ++i) room.counts({}, other), room.counts({.heard = 1}, other);
  EXPECT_FALSE(room.ends(watch, start + 999ms, {}, one));
  EXPECT_FALSE(room.ends(watch, start + 1s, {.heard = 1}, one));
  int ended = 0, of_other = 0;
  for (int i = 0; i < 950; ++i) ended += room.ends(watch, start + 1s, {}, one);
  EXPECT_EQ(ended, 950);
  EXPECT_TRUE(room.made());
  for (int i = 0; i < 40; ++i) of_other += room.ends(watch, start + 1s, {}, other);
  for (int i = 0; i < 50; ++i) ended += room.ends(watch, start + 1s, {}, one);
  EXPECT_EQ(ended - 950 + of_other, 64) << "the others make room as everybody does";
}
TEST(ConnectionBudgets, Sockets_of_one_address_are_neighbours_and_those_without_one_are_not) {
  const raw_listener listener;
  raw_peer first(listener.port()), second(listener.port());
  const std::uint8_t of_first = tp::detail::neighbours_of(first.stream().native_handle());
  EXPECT_NE(of_first, tp::detail::no_neighbours);
  EXPECT_EQ(tp::detail::neighbours_of(second.stream().native_handle()), of_first);
  EXPECT_EQ(tp::detail::neighbours_of(listener.native_handle()), tp::detail::no_neighbours) << "nobody is there";
}
TEST(ConnectionBudgets, Addresses_of_ipv4_are_no_neighbours_at_a_listener_for_both) {
  auto listener = tp::tcp_listener::open("[::]:0");
  ASSERT_TRUE(succeeded(listener));
  const auto from = [&](in_addr_t host) {
    tp::posix_stream s(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in here{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(host)}, .sin_zero = {}};
    EXPECT_EQ(::bind(s.native_handle(), reinterpret_cast<const sockaddr*>(&here), sizeof here), 0);
    here.sin_port = htons(listener->port());
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(s.native_handle(), reinterpret_cast<const sockaddr*>(&here), sizeof here), 0);
    const auto accepted = listener->accept(10s);
    EXPECT_TRUE(succeeded(accepted));
    return accepted ? tp::detail::neighbours_of(accepted->native_handle()) : tp::detail::no_neighbours;
  };
  EXPECT_NE(from(INADDR_LOOPBACK + 1), from(INADDR_LOOPBACK + 2));
  EXPECT_EQ(from(INADDR_LOOPBACK + 1), from(INADDR_LOOPBACK + 1));
}

using published = tp::publisher<net::parts, tp::no_lock, 16>;

TEST(Publisher, A_recipient_that_completed_is_told_even_if_the_next_version_is_published_in_the_same_step) {
  const auto source = random_model<mlp>(1);
  std::vector<tp::progress_phase> told;
  int settled = 0;
  auto tell = [&](const tp::progress_event& e) { told.push_back(e.phase); };
  auto over = [&](const tp::settlement&) { ++settled; };
  const auto p = std::make_unique<published>();
  const auto ref = *p->add_tensors(*source, {.recipients = 1, .settled = over, .progress = tell});
  published::owner_type::peer link;
  const auto say = [&](tp::frame m) {
    m.id = 1;
    m.ref = ref.id;
    tp::pending_reply r;
    p->machine().handle(link, m, r);
    return r;
  };
  tp::frame m;
  m.kind = tp::frame_kind::describe;
  m.recipient = {5};
  say(m);
  p->tick();
  m.kind = tp::frame_kind::pull;
  m.length = tp::all_in_one_chunk;
  const auto r = say(m);
  m = {};
  m.kind = tp::frame_kind::confirm;
  m.recipient = {5};
  m.nonce = r.nonce;
  m.version = r.version;
  m.digest = ref.version;
  m.flag = true;
  EXPECT_EQ(say(m).kind, tp::frame_kind::confirmed);
  // the same step hears a message, whose handler publishes the next round
  ASSERT_TRUE(p->add_tensors(*source, {.recipients = 1, .id = ref.id}));
  EXPECT_EQ(settled, 1);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[1], tp::progress_phase::completed);
}

TEST(Publisher, A_recipient_that_is_under_way_when_its_version_is_replaced_is_told) {
  const auto p = std::make_unique<published>();
  const auto source = random_model<mlp>(1);
  std::vector<tp::progress_phase> told;
  auto tell = [&](const tp::progress_event& e) { told.push_back(e.phase); };
  const auto ref = *p->add_tensors(*source, {.recipients = 1, .progress = tell});
  published::owner_type::peer link;
  tp::frame m;
  m.kind = tp::frame_kind::describe;
  m.recipient = {5};
  m.id = 1;
  m.ref = ref.id;
  tp::pending_reply r;
  p->machine().handle(link, m, r);
  p->tick();
  ASSERT_EQ(told.size(), 1u);
  ASSERT_TRUE(p->add_tensors(*source, {.recipients = 1, .id = ref.id}));
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[1], tp::progress_phase::failed);
}

/// Publishes twice under one ID, for two that are named or for any. Of the first version one recipient has completed
/// and another is under way; what was told meanwhile, and then of the second version's recipients.
template <std::size_t Recipients, std::size_t References>
std::vector<std::string> told_of_what_is_replaced(bool by_name, bool together) {
  using publisher = tp::publisher<net::parts, tp::no_lock, Recipients, References>;
  const auto source = random_model<mlp>(1);
  std::vector<std::string> seen;
  auto tell = [&](const tp::progress_event& e) {
    seen.push_back(std::to_string(e.recipient.value) + " " + std::string(to_string(e.phase)) + " of " +
                   std::to_string(e.bytes_total != 0));
  };
  auto over = [&](const tp::settlement& s) { seen.push_back("settled as " + std::string(to_string(s.verdict))); };
  const std::array names{tp::recipient_id{5}, tp::recipient_id{6}};
  const auto p = std::make_unique<publisher>();
  tp::publish_options how{.settled = over, .progress = tell};
  if (by_name) how.named = names;
  const auto ref = p->add_tensors(*source, how);
  EXPECT_TRUE(ref);
  if (!ref) return seen;
  typename publisher::owner_type::peer link[2];
  const auto say = [&](std::size_t who, tp::frame_kind kind, std::uint64_t nonce) {
    tp::frame m;
    m.kind = kind;
    m.id = 1;
    m.ref = ref->id;
    m.recipient = names[who];
    m.length = tp::all_in_one_chunk;
    m.version = m.digest = ref->version;
    m.flag = kind == tp::frame_kind::confirm;
    m.nonce = nonce;
    tp::pending_reply r;
    p->machine().handle(link[who], m, r);
    return r;
  };
  for (const std::size_t who : {0u, 1u}) say(who, tp::frame_kind::describe, 0);
  p->tick();
  const auto nonce = say(0, tp::frame_kind::pull, 0).nonce;
  EXPECT_EQ(say(0, tp::frame_kind::confirm, nonce).kind, tp::frame_kind::confirmed);
  how.id = ref->id;
  if (together) {
    std::array<tp::transaction_image, 1> one{{{tp::raw_tensors<mlp>::source(*source), *ref}}};
    const auto t = p->add_images(one, how.alone());
    EXPECT_TRUE(t);
  } else {
    EXPECT_TRUE(p->add_tensors(*source, how));
  }
  p->tick();
  seen.push_back("then");
  for (const std::size_t who : {0u, 1u}) say(who, tp::frame_kind::describe, 0);
  p->tick();
  std::vector<std::string> sorted = seen;  // of several recipients in any order; without what the publisher's end tells
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}
TEST(Publisher, How_recipients_of_what_is_replaced_have_ended_is_told_even_if_every_slot_and_record_is_in_use) {
  for (const bool by_name : {false, true}) {
    const auto expected = told_of_what_is_replaced<16, 4>(by_name, false);
    for (const std::string_view event : {"5 completed of 1", "6 failed of 1"})
      EXPECT_EQ(std::count(expected.begin(), expected.end(), event), 1) << event;
    EXPECT_EQ(std::count(expected.begin(), expected.end(), "5 started of 1"), 2) << "of each version";
    EXPECT_EQ((told_of_what_is_replaced<16, 1>(by_name, false)), expected) << "one slot";
    EXPECT_EQ((told_of_what_is_replaced<16, 4>(by_name, true)), expected) << "together";
    if (!by_name) {
      EXPECT_EQ((told_of_what_is_replaced<2, 4>(false, false)), expected) << "two records";
      EXPECT_EQ((told_of_what_is_replaced<2, 1>(false, false)), expected) << "one slot and two records";
      EXPECT_EQ((told_of_what_is_replaced<2, 4>(false, true)), expected) << "two records, together";
    }
  }
  // names take every record at once: of one that had not ended before nothing is told
  for (const auto& few : {told_of_what_is_replaced<2, 4>(true, false), told_of_what_is_replaced<2, 1>(true, false),
                          told_of_what_is_replaced<2, 4>(true, true)}) {
    EXPECT_EQ(std::count(few.begin(), few.end(), "5 completed of 1"), 1);
    EXPECT_EQ(std::count(few.begin(), few.end(), "5 started of 1"), 2);
  }
}

}  // namespace publisher_test
