// What holds over every transport that reaches an owner by an address, said once. A room is a place where an owner is
// opened, found and opened again; laws_*.test.cpp have the rooms, a few in each file, since each instantiates its
// pipelines. What a transport cannot have follows from its constants, or its room says it. Not here: loopback, whose
// owner has no address and no thread, and child processes, which own for one recipient; loopback and pipe_child have
// tests of their own.
#pragma once

#include "sample_models.hpp"

#include <tensorpull/core/describe.hpp>

#include <array>
#include <functional>
#include <optional>
#include <vector>

namespace test {

/// Does something once, when a part has landed and a part is still to come.
template <class Act>
struct in_the_middle {
  Act act;
  std::uint64_t from = 1;  ///< bytes that have arrived
  int acted = 0;
  void operator()(const tp::progress_event& e) {
    if (acted == 0 && e.bytes_done >= from && e.bytes_done < e.bytes_total) ++acted, act();
  }
};
template <class Act>
in_the_middle(Act, std::uint64_t = 1) -> in_the_middle<Act>;

/// A Room has
///   - `transport`, and `net<Model>`: a pipeline with it;
///   - `available()`: whether this machine has what it needs;
///   - `open<Model>(may)`: the owner, which asks `may`, at the same place each time; `where()`: how a recipient reaches
///   it;
///   - `unknown`: the error for a reference that nobody knows;
///   - `recipients`: how many pull at a time;
///   - `seen(id)`: what the owner sees of a recipient that has this ID;
///   - `stale`: the error for a version that is not published; `tells_why`: whether the reason of an end travels;
///   - `first_bytes`: what each pull asks for first, wherever it goes on;
///   - `names_differences`: whether a model of another schema is refused by a tensor's name;
///   - `takes_names`: whether some tensors can be pulled by name;
///   - `waits_for_owners`: whether a recipient that starts first tries again;
///   - optionally `owning<Model>`: the owner's pipeline, if it is another one, and `at(reference, options)`: how a
///   recipient reaches one publication, if each has an address of its own;
///   - optionally `stranger(bytes)`: says that to the owner, and whether it was turned away.
template <class Room>
class Laws : public testing::Test {
 protected:
  using transport = typename Room::transport;
  using net = typename Room::template net<mlp>;
  using downloader = typename decltype([] {
    if constexpr (requires { typename Room::template owning<mlp>; })
      return std::type_identity<typename Room::template owning<mlp>::downloader>();
    else return std::type_identity<typename net::downloader>();
  }())::type;
  static constexpr std::uint64_t image_bytes = tp::raw_tensors<mlp>::schema().image_bytes;
  static constexpr bool exact = transport::reliable && transport::ordered;  ///< nothing is sent twice
  static constexpr bool in_pieces = !transport::shares_memory;  ///< otherwise a pull is one copy, without a middle
  static constexpr tp::retry_policy patient{.retries = 10'000, .first_delay = 5ms, .longest_delay = 20ms};

  void SetUp() override {
    if (!Room::available()) GTEST_SKIP() << "this machine has not what the transport needs";
    room.emplace();
    open();
  }
  void TearDown() override {
    on.reset();
    owner.reset();
    room.reset();
  }
  void open(const tp::authorise_callback& authorise = {}) {
    auto opened = room->template open<mlp>(authorise);
    ASSERT_TRUE(succeeded(opened));
    owner.emplace(std::move(*opened));
  }
  tp::reference add(const tp::publish_options& options = {}) {
    const auto ref = owner->add_tensors(*source, options);
    EXPECT_TRUE(succeeded(ref));
    return ref ? *ref : tp::reference{};
  }
  void serve() { on.emplace(*owner); }
  void stop() { on.reset(); }
  /// How a recipient reaches what is published there.
  auto at(const tp::reference& ref, const tp::pull_options& options = {}) {
    if constexpr (requires { room->at(ref, options); }) return room->at(ref, options);
    else return room->where();
  }
  auto pull(const tp::reference& ref, const tp::pull_options& options = {}) {
    return net::download_tensors(at(ref, options), ref, *mine, options);
  }
  void expect_arrived(const tp::result<tp::receipt>& done) {
    ASSERT_TRUE(confirmed(done));
    EXPECT_EQ(done->bytes, image_bytes);
    EXPECT_TRUE(same(*mine, *source));
  }
  /// A recipient aborts when so many bytes have arrived, and goes on later.
  void abort_and_go_on(std::uint64_t from) {
    const auto ref = add({.recipients = 2});
    serve();
    std::stop_source stopping;
    const std::uint32_t reason = 42;
    const tp::recipient_id me{99};
    tp::resume_cursor cursor;
    in_the_middle abort{[&] { stopping.request_stop(); }, from};
    std::vector<tp::progress_phase> phases;
    const auto watch = [&](const tp::progress_event& e) {
      phases.push_back(e.phase);
      abort(e);
    };
    const auto cut = pull(ref, {.window = 1,
                                .stop = stopping.get_token(),
                                .stop_reason = &reason,
                                .recipient = me,
                                .cursor = &cursor,
                                .progress = watch,
                                .progress_interval = 0ms});
    if constexpr (!in_pieces) {
      EXPECT_EQ(abort.acted, 0);
      expect_arrived(cut);
      return;
    }
    ASSERT_EQ(abort.acted, 1);
    ASSERT_EQ(code_of(cut), errc::cancelled);
    EXPECT_GT(cut.error().at, 0u);
    EXPECT_LT(cut.error().at, image_bytes);
    EXPECT_EQ(phases.front(), tp::progress_phase::started);
    EXPECT_EQ(phases.back(), tp::progress_phase::aborted);
    ASSERT_TRUE(cursor);
    EXPECT_GT(cursor.offset, 0u);
    if constexpr (exact) {  // a datagram that says it may be lost
      ASSERT_TRUE(hears([&] { return owner->status_of(ref)->cancelled == 1; }));
      if constexpr (Room::tells_why) {
        EXPECT_EQ(owner->recipient_of(ref, Room::seen(me))->reason, 42u);
      }
    }
    stop();
    const std::uint64_t sent = owner->status_of(ref)->bytes_sent, at = cursor.offset;
    serve();
    const auto done = pull(ref, {.recipient = me, .cursor = &cursor});
    expect_arrived(done);
    EXPECT_EQ(cursor.offset, done->bytes);
    EXPECT_EQ(cursor.digest, done->digest);
    ASSERT_TRUE(hears([&] { return owner->status_of(ref)->completed == 1; }));
    EXPECT_EQ(owner->status_of(ref)->cancelled, 0u);
    const std::uint64_t again = owner->status_of(ref)->bytes_sent - sent;
    if constexpr (exact) {
      EXPECT_EQ(again, done->bytes - at + Room::first_bytes);
    } else {
      EXPECT_GE(again, done->bytes - at);
    }
  }
  void expect_untouched() { EXPECT_TRUE(same(*mine, *blank<mlp>())); }
  /// Runs the owner, which served on a thread, until it knows something. It stands still then.
  template <class Known>
  bool hears(Known known) {
    stop();
    return runs_until("the owner hears of it", *owner, known);
  }

  // what the owner borrows
  std::function<bool(const tp::access_request&)> may;
  std::atomic<bool> as_the_constant_says{true};
  std::optional<Room> room;
  std::unique_ptr<mlp> source = random_model<mlp>(1), mine = blank<mlp>();
  std::optional<downloader> owner;
  std::optional<serving> on;
};

TYPED_TEST_SUITE_P(Laws);

TYPED_TEST_P(Laws, A_model_arrives_and_is_counted) {
  const auto ref = this->add({.recipients = 1});
  this->serve();
  const auto done = this->pull(ref);
  this->expect_arrived(done);
  ASSERT_TRUE(this->hears([&] { return this->owner->settled(ref); }));
  EXPECT_EQ(done->version, ref.version);
  const auto status = this->owner->status_of(ref);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->acquired, 1u);
  EXPECT_EQ(status->completed, 1u);
  EXPECT_EQ(status->final(), 1u);
  if constexpr (!TestFixture::in_pieces) {
    EXPECT_EQ(status->bytes_sent, 0u) << "both ends map it";
  } else if constexpr (TestFixture::exact) {
    EXPECT_EQ(status->bytes_sent, done->bytes);
  } else {
    EXPECT_GE(status->bytes_sent, done->bytes);
  }
  EXPECT_EQ(this->owner->settlement_of(ref)->verdict, tp::verdict::completed);
  if constexpr (requires { this->owner->counts().malformed; }) {
    EXPECT_EQ(this->owner->counts().malformed, 0u);
  }
}

TYPED_TEST_P(Laws, Several_recipients_arrive_and_are_counted) {
  constexpr std::uint32_t recipients = TypeParam::recipients;
  const auto ref = this->add({.recipients = recipients});
  this->serve();
  std::atomic<std::uint32_t> right{0};
  on_threads(recipients, [&](std::size_t) {
    const auto own = blank<mlp>();
    const auto done = TestFixture::net::download_tensors(this->at(ref), ref, *own);
    right += done && done->outcome == tp::outcome::completed && same(*own, *this->source);
  });
  EXPECT_EQ(right, recipients);
  ASSERT_TRUE(this->hears([&] { return this->owner->settled(ref); }));
  EXPECT_EQ(this->owner->status_of(ref)->completed, recipients);
}

TYPED_TEST_P(Laws, What_is_not_there_or_differs_is_refused_by_name_and_nothing_lands) {
  const auto gone = this->add(), ref = this->add();
  ASSERT_TRUE(this->owner->withdraw(gone, 7));
  EXPECT_TRUE(this->owner->withdraw(gone)) << "once more changes nothing";
  EXPECT_EQ(code_of(this->owner->withdraw({{4, 4}, 0, 0})), errc::unknown_reference);
  this->serve();
  const tp::pull_options once{.retry = {.retries = 0}};
  EXPECT_EQ(this->pull({{1, 2}, 3, 0}, once).error(), TypeParam::unknown);
  EXPECT_EQ(code_of(this->pull(gone, once)), errc::withdrawn);
  EXPECT_EQ(this->pull(ref, {.version = 5}).error(), TypeParam::stale);
  this->expect_untouched();
  const auto other = random_model<tiny>(2), before = random_model<tiny>(2);
  const auto differs = TypeParam::template net<tiny>::download_tensors(this->at(ref), ref.id, *other,
                                                                       {.believe = true});
  ASSERT_EQ(code_of(differs), errc::schema_mismatch);
  EXPECT_EQ(differs.error().at, 0u);
  const auto name = differs.error().name.view();
  if constexpr (TypeParam::names_differences) {
    EXPECT_TRUE(name == "step" || name == "w") << name;
  }
  EXPECT_TRUE(same(*other, *before));
  this->stop();
  EXPECT_EQ(this->owner->status_of(ref)->completed, 0u);
  this->serve();
  this->expect_arrived(this->pull(ref));
}

TYPED_TEST_P(Laws, C2_what_is_withdrawn_in_the_middle_ends_with_the_programs_reason) {
  const auto ref = this->add({.recipients = 1});
  this->serve();
  in_the_middle withdraw{[&] {
    this->stop();
    EXPECT_TRUE(this->owner->withdraw(ref, 77));
    this->serve();
  }};
  const auto done = this->pull(ref, {.window = 1, .progress = withdraw, .progress_interval = 0ms});
  if constexpr (!TestFixture::in_pieces) {
    EXPECT_EQ(withdraw.acted, 0);
    this->expect_arrived(done);
    return;
  }
  ASSERT_EQ(withdraw.acted, 1);
  ASSERT_EQ(code_of(done), errc::withdrawn);
  if constexpr (TypeParam::tells_why) {
    EXPECT_EQ(done.error().system, 77);
  }
  this->stop();
  EXPECT_EQ(this->owner->status_of(ref)->completed, 0u);
}

TYPED_TEST_P(Laws, An_abort_before_lands_nothing) {
  const auto ref = this->add({.recipients = 1});
  this->serve();
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(code_of(this->pull(ref, {.stop = stop.get_token()})), errc::cancelled);
  this->expect_untouched();
  this->expect_arrived(this->pull(ref));
}

TYPED_TEST_P(Laws, The_owner_hears_of_an_abort_and_its_reason_and_the_cursor_goes_on_later) {
  this->abort_and_go_on(1);
  this->stop();
  this->abort_and_go_on(TestFixture::image_bytes / 2);
}

TYPED_TEST_P(Laws, T4_an_owner_that_starts_again_in_the_middle_is_found_and_what_has_landed_stays) {
  const tp::reference ref = this->add({.id = {3, 4}});
  this->serve();
  std::uint64_t most = 0;
  bool fell = false;
  in_the_middle restart{[&] {
    this->stop();
    this->owner.reset();
    this->open();
    (void)this->add({.id = {3, 4}});
    this->serve();
  }};
  const auto watch = [&](const tp::progress_event& e) {
    fell |= e.bytes_done < most;
    most = e.bytes_done;
    restart(e);
  };
  const auto done = this->pull({ref.id, 0, 0}, {.per_request_timeout = 2s,
                                                .believe = true,
                                                .window = 1,
                                                .retry = TestFixture::patient,
                                                .progress = watch,
                                                .progress_interval = 0ms});
  EXPECT_EQ(restart.acted, TestFixture::in_pieces ? 1 : 0);
  this->expect_arrived(done);
  EXPECT_FALSE(fell) << "it went on where it stood";
}

TYPED_TEST_P(Laws, A_recipient_that_starts_before_its_owner_waits_for_it) {
  if constexpr (TypeParam::waits_for_owners) {
    this->owner.reset();
    EXPECT_FALSE(this->pull({{5, 6}, 0, 0}, {.per_request_timeout = 200ms, .retry = {.retries = 0}}));
    this->expect_untouched();
    joined_thread later([&] {
      be_slow(100ms);  // several tries, most likely; the test holds without them
      this->open();
      (void)this->add({.id = {5, 6}});
      this->serve();
    });
    const auto done = this->pull({{5, 6}, 0, 0}, {.per_request_timeout = 2s, .retry = TestFixture::patient});
    later.join();
    this->expect_arrived(done);
  } else {
    this->stop();
    this->owner.reset();
    EXPECT_EQ(this->pull({{5, 6}, 7, 0}, {.per_request_timeout = 2s, .retry = {.retries = 1}}).error(),
              TypeParam::unknown);
  }
}

TYPED_TEST_P(Laws, The_program_says_who_may_have_what_and_is_told_who_asks) {
  this->may = [this](const tp::access_request& r) {
    if (r.peer.kind != TestFixture::transport::identifies) this->as_the_constant_says = false;
    return r.recipient == TypeParam::seen({7});
  };
  this->owner.reset();
  this->open(this->may);
  const auto ref = this->add({.recipients = 1});
  this->serve();
  const auto refused = this->pull(ref, {.recipient = {8}});
  ASSERT_EQ(code_of(refused), errc::unknown_reference);
  EXPECT_EQ(refused.error().at, 0u);
  this->expect_untouched();
  this->expect_arrived(this->pull(ref, {.recipient = {7}}));
  this->stop();
  EXPECT_EQ(this->owner->callback_failures(), 0u);
  EXPECT_TRUE(this->as_the_constant_says);
}

TYPED_TEST_P(Laws, Progress_is_told_in_order_from_start_to_end) {
  const auto ref = this->add({.recipients = 1});
  this->serve();
  std::vector<tp::progress_event> seen;
  const auto watch = [&](const tp::progress_event& e) { seen.push_back(e); };
  this->expect_arrived(this->pull(ref, {.progress = watch, .progress_interval = 0ms}));
  ASSERT_GE(seen.size(), TestFixture::in_pieces ? 3u : 2u);
  EXPECT_EQ(seen.front().phase, tp::progress_phase::started);
  EXPECT_EQ(seen.back().phase, tp::progress_phase::completed);
  EXPECT_EQ(seen.back().bytes_done, TestFixture::image_bytes);
  EXPECT_EQ(seen.back().tensors_done, seen.back().tensors_total);
  for (std::size_t i = 1; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].sequence, seen[i - 1].sequence + 1);
    EXPECT_GE(seen[i].bytes_done, seen[i - 1].bytes_done);
  }
}

TYPED_TEST_P(Laws, Some_tensors_arrive_by_name_and_no_other_byte) {
  const auto ref = this->add({.recipients = 1});
  this->serve();
  const std::array<std::uint64_t, 1> shape{sizeof this->mine->mask};
  const std::array views{tp::mutable_tensor_view{
      .name = "mask", .type = dtype::u8, .shape = shape, .data = reinterpret_cast<std::byte*>(this->mine->mask)}};
  auto image = tp::dynamic_image::make(std::span<const tp::mutable_tensor_view>(views));
  ASSERT_TRUE(image);
  tp::land to(image->destination());
  const std::string_view names[] = {"mask"};
  if constexpr (TestFixture::transport::anyone_answers) {
    // the version is the digest of the whole, and that of a part is what the answer says
    EXPECT_EQ(code_of(TestFixture::net::pull(this->at(ref), ref, to, {.tensors = names})), errc::version_required);
    this->expect_untouched();
  }
  tp::progress_event last;
  const auto watch = [&](const tp::progress_event& e) { last = e; };
  const auto done = TestFixture::net::pull(
      this->at(ref), ref, to, {.tensors = names, .believe = true, .progress = watch, .progress_interval = 0ms});
  if constexpr (!TypeParam::takes_names) {
    EXPECT_EQ(code_of(done), errc::unsupported_request);
    this->expect_untouched();
    return;
  }
  ASSERT_TRUE(completed(done));
  EXPECT_TRUE(done->believed);
  EXPECT_EQ(done->bytes, sizeof this->mine->mask);
  EXPECT_EQ(last.bytes_total, done->bytes);
  EXPECT_EQ(last.bytes_done, done->bytes);
  EXPECT_EQ(last.tensors_total, 1u);
  EXPECT_EQ(last.tensors_done, 1u);
  EXPECT_EQ(std::memcmp(this->mine->mask, this->source->mask, sizeof this->mine->mask), 0);
  std::memset(this->mine->mask, 0, sizeof this->mine->mask);
  this->expect_untouched();
  if constexpr (!TestFixture::in_pieces) {
    this->stop();
    EXPECT_EQ(this->owner->status_of(ref)->bytes_sent, 0u);
  }
}

// The next two are the rows of a link in .github/SECURITY.md. The liar is the party that answers under the ID: a second
// owner, an attacker on the way, a server.

TYPED_TEST_P(Laws, Other_bytes_never_complete_for_a_recipient_that_was_given_the_version) {
  const auto ref = this->add(), right = this->add();
  const auto other = random_model<mlp>(2);
  const auto lie = [&](std::uint64_t version) {
    (void)this->owner->withdraw(ref);
    const auto lied = this->owner->add_tensors(*other, {.id = ref.id, .version = version});
    ASSERT_TRUE(succeeded(lied));
    EXPECT_EQ(lied->version == ref.version, version != 0);
    this->serve();
  };
  lie(0);  // it says which version it has
  const auto stale = this->pull(ref, {.believe = true});
  EXPECT_EQ(code_of(stale), TypeParam::stale);
  this->expect_untouched();
  this->stop();
  lie(ref.version);  // it says that its bytes are the version that is asked for
  const auto wrong = this->pull(ref, {.believe = true, .retry = {.retries = 0}});
  EXPECT_EQ(code_of(wrong), errc::digest_mismatch);
  const auto done = this->pull(right);
  this->expect_arrived(done);
  EXPECT_FALSE(done->believed);
}

TYPED_TEST_P(Laws, A_pull_by_a_bare_ID_says_that_whoever_answered_was_believed) {
  const auto ref = this->add();
  const auto bare = [&](const tp::pull_options& options) {
    return TestFixture::net::download_tensors(this->at({ref.id, 0, 0}, options), ref.id, *this->mine, options);
  };
  if constexpr (TestFixture::transport::anyone_answers) {
    // before anything is asked: there is nobody who could answer
    EXPECT_EQ(code_of(bare({})), errc::version_required);
    EXPECT_EQ(code_of(this->pull({ref.id, 0, 0})), errc::version_required);
    this->expect_untouched();
  }
  this->serve();
  const auto done = bare({.believe = true});
  this->expect_arrived(done);
  EXPECT_TRUE(done->believed);
  typename TestFixture::net::consumer to(*this->mine);
  const auto landed = TestFixture::net::pull(this->at({ref.id, 0, 0}), ref.id, to, {.believe = true});
  this->expect_arrived(landed);
  EXPECT_TRUE(landed->believed);
  const auto known = this->pull({ref.id, 0, 0}, {.version = ref.version});
  this->expect_arrived(known);
  EXPECT_FALSE(known->believed) << "it was given the version beside the reference";
}

TYPED_TEST_P(Laws, F16_other_protocols_learn_nothing_and_cost_nobody_else) {
  if constexpr (requires(TypeParam& r) { r.stranger(std::string_view()); }) {
    const auto ref = this->add({.recipients = 1});
    this->serve();
    const std::string zeros(64 * 1024, '\0');
    for (const std::string_view said : {std::string_view("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
                                        std::string_view("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),
                                        std::string_view("SSH-2.0-OpenSSH_9.2p1\r\n"), std::string_view(zeros)})
      EXPECT_TRUE(this->room->stranger(said));
    this->expect_arrived(this->pull(ref));
  } else {
    static_assert(!TestFixture::exact, "a stream has strangers");
  }
}

TYPED_TEST_P(Laws, Q4_pulls_leave_nothing_behind) {
  std::vector<std::size_t> held;
  for (int i = 0; i < 3; ++i) {
    const auto ref = this->add({.recipients = 1});
    this->serve();
    this->mine = blank<mlp>();
    this->expect_arrived(this->pull(ref));
    ASSERT_TRUE(this->hears([&] { return this->owner->settled(ref); }));
    this->owner.reset();
    held.push_back(descriptors());
    this->open();
  }
  EXPECT_EQ(held.back(), held.front());
  EXPECT_EQ(held[1], held.front());
}

REGISTER_TYPED_TEST_SUITE_P(Laws, A_model_arrives_and_is_counted, Several_recipients_arrive_and_are_counted,
                            What_is_not_there_or_differs_is_refused_by_name_and_nothing_lands,
                            C2_what_is_withdrawn_in_the_middle_ends_with_the_programs_reason,
                            An_abort_before_lands_nothing,
                            The_owner_hears_of_an_abort_and_its_reason_and_the_cursor_goes_on_later,
                            T4_an_owner_that_starts_again_in_the_middle_is_found_and_what_has_landed_stays,
                            A_recipient_that_starts_before_its_owner_waits_for_it,
                            The_program_says_who_may_have_what_and_is_told_who_asks,
                            Progress_is_told_in_order_from_start_to_end, Some_tensors_arrive_by_name_and_no_other_byte,
                            Other_bytes_never_complete_for_a_recipient_that_was_given_the_version,
                            A_pull_by_a_bare_ID_says_that_whoever_answered_was_believed,
                            F16_other_protocols_learn_nothing_and_cost_nobody_else, Q4_pulls_leave_nothing_behind);

/// What most rooms say.
struct usual_room {
  static constexpr std::uint32_t recipients = 4;
  static constexpr auto unknown = errc::unknown_reference;
  static tp::recipient_id seen(tp::recipient_id id) { return id; }
  static constexpr auto stale = errc::stale_version;
  static constexpr std::uint64_t first_bytes = 0;
  static constexpr bool tells_why = true, names_differences = true;
  static constexpr bool takes_names = true;
  static constexpr bool waits_for_owners = true;
  static bool available() { return true; }
};

}  // namespace test
