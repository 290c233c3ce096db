// What holds for the two ends of every connection that has sessions, said once: both own, pull and send messages. A
// pair is a place where two ends meet; laws_*.test.cpp have the pairs beside the rooms of laws.hpp.
#pragma once

#include "sample_models.hpp"

#include <tensorpull/core/describe.hpp>

#include <array>
#include <optional>
#include <stop_token>
#include <vector>

namespace test {

/// A Pair has
///   - `net`, a pipeline, whose model is `model`;
///   - `available()`: whether this machine has what it needs;
///   - `ends()`: results of two connected sessions, in a std::pair; they may be of two types.
template <class Pair>
class TwoWayLaws : public testing::Test {
 protected:
  using net = typename Pair::net;
  using transport = typename net::parts::transport;
  using model = typename Pair::model;
  using ends = decltype(std::declval<Pair&>().ends());
  static constexpr bool in_order = transport::reliable && transport::ordered;
  static constexpr bool in_pieces = !transport::shares_memory;

  void SetUp() override {
    if (!Pair::available()) GTEST_SKIP() << "this machine has not what the transport needs";
    pair.emplace();
    open();
  }
  void TearDown() override {
    near.reset();
    far.reset();
    pair.reset();
  }
  void open() {
    auto [one, other] = pair->ends();
    ASSERT_TRUE(succeeded(one));
    ASSERT_TRUE(succeeded(other));
    near.emplace(std::move(*one));
    far.emplace(std::move(*other));
  }
  /// Serves until the test at the other end is done with what it does.
  template <class Session>
  static void serve(Session& s, const std::atomic<bool>& done) {
    (void)s.serve([&](const auto&) { return done.load(); }, 60s);
  }
  /// Does something at the near end while the far one serves.
  template <class Act>
  void while_far_serves(Act act) {
    std::atomic<bool> done = false;
    joined_thread other([&] { serve(*far, done); });
    act();
    done = true;
  }
  template <class Session>
  static void expect_pulls(Session& s, const tp::reference& ref, const model& expected) {
    const auto mine = blank<model>();
    const auto done = s.download_tensors(ref, *mine, {.per_request_timeout = 20s});
    ASSERT_TRUE(completed(done));
    EXPECT_TRUE(same(*mine, expected));
  }

  std::optional<Pair> pair;
  std::optional<typename ends::first_type::value_type> near;
  std::optional<typename ends::second_type::value_type> far;
  std::unique_ptr<model> of_near = random_model<model>(1), of_far = random_model<model>(2);
};

TYPED_TEST_SUITE_P(TwoWayLaws);

TYPED_TEST_P(TwoWayLaws, Both_ends_own_pull_and_talk) {
  const auto ref_far = this->far->add_tensors(*this->of_far, {.recipients = 1});
  ASSERT_TRUE(ref_far);
  joined_thread other([&] {
    const auto task = this->far->receive(20s);
    ASSERT_TRUE(succeeded(task));
    EXPECT_EQ(task->kind, 5u);
    ASSERT_EQ(task->references.size(), 1u);
    const tp::reference wanted = task->references[0];
    this->expect_pulls(*this->far, wanted, *this->of_near);
    EXPECT_TRUE(this->far->send(6, {&*ref_far, 1}, std::array{std::byte{42}}, 20s));
    EXPECT_TRUE(this->far->serve(tp::until_settled(*ref_far), 20s));
    EXPECT_EQ(this->far->status_of(*ref_far)->completed, 1u);
  });
  const auto ref_near = this->near->add_tensors(*this->of_near, {.recipients = 1});
  ASSERT_TRUE(ref_near);
  EXPECT_TRUE(this->near->send(5, {&*ref_near, 1}, {}, 20s));
  const auto answer = this->near->receive(20s);
  ASSERT_TRUE(succeeded(answer));
  EXPECT_EQ(answer->kind, 6u);
  ASSERT_EQ(answer->body.size(), 1u);
  EXPECT_EQ(answer->body[0], std::byte{42});
  ASSERT_EQ(answer->references.size(), 1u);
  const tp::reference wanted = answer->references[0];
  this->expect_pulls(*this->near, wanted, *this->of_far);
  other.join();
  EXPECT_TRUE(this->near->settled(*ref_near));
}

TYPED_TEST_P(TwoWayLaws, Both_ends_pull_at_once_again_and_again) {
  for (int round = 0; round < 3; ++round) {
    const auto ref_near = this->near->add_tensors(*this->of_near, {.recipients = 1});
    const auto ref_far = this->far->add_tensors(*this->of_far, {.recipients = 1});
    ASSERT_TRUE(ref_near && ref_far);
    const auto one = [&](auto& s, const tp::reference& theirs, const tp::reference& ours, const auto& expected) {
      this->expect_pulls(s, theirs, expected);
      const auto served = s.serve(tp::until_settled(ours), 20s);
      EXPECT_TRUE(served || s.settled(ours)) << describe(served.error());
    };
    joined_thread other([&] { one(*this->far, *ref_near, *ref_far, *this->of_near); });
    one(*this->near, *ref_far, *ref_near, *this->of_far);
  }
}

/// Takes models of another schema only.
template <class Model>
struct refusing_land : tp::land {
  explicit refusing_land(Model& m) : tp::land(tp::raw_tensors<Model>::destination(m)) {}
  tp::result<void> begin(const tp::description&) noexcept { return tp::failure(errc::schema_mismatch); }
};
TYPED_TEST_P(TwoWayLaws, Serving_until_it_settles_fails_if_it_was_refused_or_withdrawn) {
  const auto ref = this->far->add_tensors(*this->of_far, {.recipients = 1});
  ASSERT_TRUE(ref);
  joined_thread other([&] {
    const auto mine = blank<typename TestFixture::model>();
    refusing_land<typename TestFixture::model> to(*mine);
    EXPECT_EQ(code_of(this->near->pull(*ref, to, {.per_request_timeout = 20s})), errc::schema_mismatch);
  });
  EXPECT_EQ(code_of(this->far->serve(tp::until_settled(*ref), 20s)), errc::not_delivered);
  const auto other_ref = this->far->add_tensors(*this->of_far, {.recipients = 1});
  EXPECT_TRUE(this->far->withdraw(*other_ref));
  EXPECT_EQ(code_of(this->far->serve(tp::until_settled(*other_ref), 20s)), errc::withdrawn);
  EXPECT_EQ(code_of(this->far->serve(tp::until_settled(*ref, *other_ref), 20s)), errc::not_delivered);
}

TYPED_TEST_P(TwoWayLaws, A_callback_of_a_pull_takes_none_of_its_chunks) {
  const auto ref = this->far->add_tensors(*this->of_far, {.recipients = 1});
  ASSERT_TRUE(ref);
  const auto mine = blank<typename TestFixture::model>();
  this->while_far_serves([&] {
    int calls = 0;
    auto tell = [&](const tp::progress_event& e) {
      if (e.phase > tp::progress_phase::active) return;
      ++calls;
      EXPECT_EQ(code_of(this->near->receive(1ms)), errc::busy);
      EXPECT_EQ(code_of(this->near->serve([](const auto&) { return false; }, 1ms)), errc::busy);
      EXPECT_EQ(code_of(this->near->download_tensors(*ref, *mine)), errc::busy);
      EXPECT_TRUE(calls > 1 || this->near->send(3, {}, {}, 1ms));
    };
    const auto done = this->near->download_tensors(
        *ref, *mine, {.per_request_timeout = 20s, .progress = tell, .progress_interval = 0ms});
    ASSERT_TRUE(completed(done));
    EXPECT_GT(calls, 0);
  });
  EXPECT_TRUE(same(*mine, *this->of_far));
  const auto got = this->far->receive(20s);
  ASSERT_TRUE(succeeded(got));
  EXPECT_EQ(got->kind, 3u);
}

TYPED_TEST_P(TwoWayLaws, Messages_of_every_size_arrive_once_and_in_order) {
  static constexpr std::array<std::size_t, 8> sizes{0, 1, 400, 512, 0, 4096, 65535, 65536};
  const auto body_of = [](std::size_t i) { return generator(i).bytes(sizes[i]); };
  joined_thread other([&] {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::array refs{tp::reference{{1, i}, 3, 4}, tp::reference{{5, 6}, 7, 8}};
      const auto sent = this->near->send(static_cast<std::uint32_t>(i), refs, body_of(i), 20s);
      EXPECT_TRUE(sent) << i << describe(sent.error());
    }
    EXPECT_EQ(code_of(this->near->send(1, {}, byte_vector(65537))), errc::does_not_fit);
    EXPECT_EQ(code_of(this->near->send(1, std::vector<tp::reference>(9), {})), errc::does_not_fit);
    EXPECT_TRUE(this->near->send(99, {}, {}, 20s)) << "a refused message changes nothing";
  });
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto got = this->far->receive(20s);
    ASSERT_TRUE(got) << i << describe(got.error());
    EXPECT_EQ(got->kind, i);
    ASSERT_EQ(got->references.size(), 2u);
    EXPECT_EQ(got->references[0], (tp::reference{{1, i}, 3, 4}));
    EXPECT_EQ(got->references[1], (tp::reference{{5, 6}, 7, 8}));
    const auto body = body_of(i);
    EXPECT_TRUE(std::equal(got->body.begin(), got->body.end(), body.begin(), body.end()));
  }
  const auto last = this->far->receive(20s);
  ASSERT_TRUE(succeeded(last));
  EXPECT_EQ(last->kind, 99u);
  EXPECT_EQ(code_of(this->far->receive(200ms)), errc::timed_out);  // meanwhile the other end hears that it has come
}

TYPED_TEST_P(TwoWayLaws, C2_what_is_withdrawn_in_the_middle_says_why_and_the_session_goes_on) {
  const auto kept = this->far->add_tensors(*this->of_far), gone = this->far->add_tensors(*this->of_far);
  ASSERT_TRUE(kept && gone);
  std::atomic<bool> done = false;
  joined_thread other([&] {
    (void)this->far->serve([&](const auto& s) { return done || s.status_of(*gone)->bytes_sent > 0; }, 60s);
    EXPECT_TRUE(this->far->withdraw(*gone, 77));
    this->serve(*this->far, done);
  });
  const auto mine = blank<typename TypeParam::model>();
  const auto cut = this->near->download_tensors(*gone, *mine, {.per_request_timeout = 20s, .window = 1});
  if constexpr (TestFixture::in_pieces) {
    EXPECT_EQ(code_of(cut), errc::withdrawn) << describe(cut.error());
    EXPECT_EQ(cut.error().system, 77);
  } else {
    EXPECT_TRUE(cut) << "one copy, without a middle";
  }
  this->expect_pulls(*this->near, *kept, *this->of_far);
  done = true;
}

TYPED_TEST_P(TwoWayLaws, An_abort_leaves_a_session_that_goes_on_from_the_cursor) {
  const auto ref = this->far->add_tensors(*this->of_far, {.recipients = 2});
  ASSERT_TRUE(ref);
  this->while_far_serves([&] {
    std::stop_source stop;
    tp::resume_cursor cursor;
    const auto abort = [&](const tp::progress_event& e) {
      if (e.bytes_done > 0 && e.bytes_done < e.bytes_total) stop.request_stop();
    };
    const auto mine = blank<typename TypeParam::model>();
    const auto cut = this->near->download_tensors(
        *ref, *mine,
        {.window = 1, .stop = stop.get_token(), .cursor = &cursor, .progress = abort, .progress_interval = 0ms});
    if constexpr (TestFixture::in_pieces) {
      ASSERT_EQ(code_of(cut), errc::cancelled) << describe(cut.error());
      EXPECT_GT(cursor.offset, 0u);
      const auto at = cursor.offset;
      const auto done = this->near->download_tensors(*ref, *mine, {.per_request_timeout = 20s, .cursor = &cursor});
      ASSERT_TRUE(succeeded(done));
      EXPECT_EQ(cursor.offset, done->bytes);
      EXPECT_GT(cursor.offset, at);
    } else {
      ASSERT_TRUE(cut);
    }
    EXPECT_TRUE(same(*mine, *this->of_far));
  });
  EXPECT_EQ(this->far->status_of(*ref)->completed, 1u);
  EXPECT_EQ(this->far->status_of(*ref)->cancelled, 0u);
}

TYPED_TEST_P(TwoWayLaws, The_program_says_who_may_have_what) {
  int asked = 0;
  const auto may = [&](const tp::access_request& r) { return ++asked > 0 && r.recipient == tp::recipient_id{7}; };
  this->far->authorise(may);
  const auto ref = this->far->add_tensors(*this->of_far, {.recipients = 1});
  ASSERT_TRUE(ref);
  this->while_far_serves([&] {
    const auto mine = blank<typename TypeParam::model>();
    const auto refused = this->near->download_tensors(*ref, *mine, {.retry = {.retries = 0}, .recipient = {8}});
    EXPECT_EQ(code_of(refused), errc::unknown_reference) << describe(refused.error());
    EXPECT_TRUE(same(*mine, *blank<typename TypeParam::model>()));
    const auto done = this->near->download_tensors(*ref, *mine, {.recipient = {7}});
    EXPECT_TRUE(succeeded(done));
  });
  EXPECT_GE(asked, 2);
}

TYPED_TEST_P(TwoWayLaws, Every_wait_ends_by_time_and_by_abort) {
  const auto mine = blank<typename TypeParam::model>();
  EXPECT_EQ(code_of(this->near->receive(60ms)), errc::timed_out);
  EXPECT_EQ(code_of(this->near->receive(0ms)), errc::timed_out);
  EXPECT_EQ(code_of(this->near->serve([](const auto&) { return false; }, 1ms)), errc::timed_out);
  EXPECT_EQ(code_of(this->near->download_tensors({{1, 2}, 3, 0}, *mine,
                                                 {.per_request_timeout = 50ms, .retry = {.retries = 0}})),
            errc::timed_out);
  stop_after stop(50ms);
  const auto token = stop.get_token();
  EXPECT_EQ(code_of(this->near->receive(600s, token)), errc::cancelled);
  EXPECT_EQ(code_of(this->near->serve([](const auto&) { return false; }, 600s, token)), errc::cancelled);
  EXPECT_EQ(code_of(this->near->download_tensors({{1, 2}, 3, 0}, *mine, {.stop = token})), errc::cancelled);
  if constexpr (!TestFixture::in_order) {
    EXPECT_EQ(code_of(this->near->send(1, {}, {}, 600s, token)), errc::cancelled) << "nobody says that it has it";
  }
}

TYPED_TEST_P(TwoWayLaws, Of_an_end_that_is_gone_one_hears_if_the_link_can_tell) {
  this->far.reset();
  if constexpr (TestFixture::in_order) {
    const auto mine = blank<typename TypeParam::model>();
    EXPECT_EQ(code_of(this->near->receive(60s)), errc::connection_lost);
    EXPECT_EQ(code_of(this->near->download_tensors({{1, 2}, 3, 0}, *mine)), errc::connection_lost)
        << "a broken session stays broken";
    EXPECT_EQ(code_of(this->near->send(1, {}, {})), errc::connection_lost);
  } else {
    EXPECT_EQ(code_of(this->near->send(1, {}, {}, 300ms)), errc::timed_out);
  }
}

TYPED_TEST_P(TwoWayLaws, Q4_sessions_leave_nothing_behind) {
  std::vector<std::size_t> held;
  for (int i = 0; i < 3; ++i) {
    const auto ref = this->far->add_tensors(*this->of_far);
    ASSERT_TRUE(ref);
    this->while_far_serves([&] { this->expect_pulls(*this->near, *ref, *this->of_far); });
    this->near.reset();
    this->far.reset();
    held.push_back(descriptors());
    this->open();
  }
  EXPECT_EQ(held[1], held.front());
  EXPECT_EQ(held.back(), held.front());
}

REGISTER_TYPED_TEST_SUITE_P(TwoWayLaws, Both_ends_own_pull_and_talk, Both_ends_pull_at_once_again_and_again,
                            A_callback_of_a_pull_takes_none_of_its_chunks,
                            Serving_until_it_settles_fails_if_it_was_refused_or_withdrawn,
                            Messages_of_every_size_arrive_once_and_in_order,
                            C2_what_is_withdrawn_in_the_middle_says_why_and_the_session_goes_on,
                            An_abort_leaves_a_session_that_goes_on_from_the_cursor, The_program_says_who_may_have_what,
                            Every_wait_ends_by_time_and_by_abort, Of_an_end_that_is_gone_one_hears_if_the_link_can_tell,
                            Q4_sessions_leave_nothing_behind);

/// What most pairs say.
struct usual_pair {
  using model = mlp;
  static bool available() { return true; }
};
/// Both ends of a connection over a stream: the transport of `Net` connects, and the listener accepts.
template <class Net, class Listener, class Address>
auto connected_ends(Listener& listener, const Address& address) {
  tp::result<typename Net::session> near = tp::failure(errc::timed_out), far = tp::failure(errc::timed_out);
  {
    const joined_thread connects([&] { near = Net::session::connect(address, {.timeout = 20s}); });
    auto accepted = listener.accept(20s);
    if (accepted) far = Net::session::over(std::move(*accepted));
  }
  return std::pair(std::move(near), std::move(far));
}

}  // namespace test
