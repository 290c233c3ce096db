// Read-only views: what they are of, what they cost, how long they last.
#include "shm.hpp"
#include "support/child_process.hpp"

#include <tensorpull/tensors/tensor_list.hpp>


#include <csignal>

namespace shm_view_test {

using namespace test;
using net = shared_net<>;

/// A model in shared memory with random content.
tp::shared_model<mlp> shared_random(std::uint64_t seed) {
  auto shared = tp::make_shared_model<mlp>();
  EXPECT_TRUE(shared);
  generator(seed).fill(std::as_writable_bytes(std::span(shared->get(), 1)));
  return *shared;
}

bool same(const tp::source_view& there, const mlp& source) {
  const auto mine = tp::raw_tensors<mlp>::source(source);
  if (there.schema->fingerprint != mine.schema->fingerprint) return false;
  for (std::size_t i = 0; i < mine.schema->tensor_count; ++i)
    if (std::memcmp(there.address(i), mine.address(i), mine.schema->tensors[i].size_bytes()) != 0) return false;
  return true;
}

TEST(SharedView, A_model_that_was_allocated_there_is_seen_as_a_model) {
  const auto shared = shared_random(1);
  shared_owner<net> o;
  const auto ref = o.add(shared);
  o.serve();
  const auto view = net::view(o.address, ref);
  ASSERT_TRUE(succeeded(view));
  o.stop();
  EXPECT_EQ(view->how().outcome, tp::outcome::completed);
  EXPECT_TRUE(view->how().confirmed);
  EXPECT_TRUE(view->owner_can_write());
  const auto model = view->model();
  ASSERT_TRUE(succeeded(model)) << ' ' << model.error().name.view();
  EXPECT_NE(*model, shared.get());
  EXPECT_TRUE(test::same(**model, *shared));
  EXPECT_TRUE(same(view->tensors(), *shared));
  EXPECT_EQ(o.owner.status_of(ref)->bytes_sent, 0u);
  EXPECT_EQ(o.owner.status_of(ref)->completed, 1u);
  shared->step = 5;  // nothing was copied
  EXPECT_EQ((*model)->step, 5);
}

TEST(SharedView, A_bare_ID_opens_whatever_the_owner_says_and_a_version_nothing_else) {
  const auto shared = shared_random(1);
  shared_owner<net> o;
  const auto one = o.add(shared), ref = o.add(shared);
  o.serve();
  EXPECT_EQ(code_of(net::view(o.address, {ref.id, ref.version ^ 1, 0})), errc::stale_version);
  const auto bare = net::view(o.address, one.id), known = net::view(o.address, ref);
  ASSERT_TRUE(succeeded(bare));
  ASSERT_TRUE(succeeded(known));
  EXPECT_TRUE(bare->how().believed);
  EXPECT_FALSE(known->how().believed);
}

TEST(SharedView, A_model_that_was_copied_is_seen_as_a_list_that_nobody_can_change) {
  const auto source = random_model<mlp>(2);
  shared_owner<net> o;
  const auto ref = o.add(*source);
  o.serve();
  const auto view = net::view(o.address, ref);
  ASSERT_TRUE(succeeded(view));
  o.stop();
  EXPECT_EQ(view->how().outcome, tp::outcome::completed);
  EXPECT_FALSE(view->owner_can_write());
  EXPECT_TRUE(same(view->tensors(), *source));
  const auto model = view->model();
  ASSERT_FALSE(model);  // the tensors lie in the order of an image
  EXPECT_EQ(code_of(model), errc::unsupported_layout);
}

TEST(SharedView, Without_a_schema_of_its_own_it_takes_the_owners) {
  using list = tp::pipeline<tp::tensor_list, tp::fixed_bytes<64_KiB>, tp::shared_memory>;
  const auto source = random_model<mlp>(3);
  shared_owner<net> o;
  const auto ref = o.add(*source);
  o.serve();
  auto view = list::view(o.address, ref);
  ASSERT_TRUE(succeeded(view));
  o.stop();
  const auto moved = std::move(*view);
  EXPECT_TRUE(same(moved.tensors(), *source));
  EXPECT_EQ(moved.tensors().schema->tensors[0].name, "step");
}

TEST(SharedView, Another_schema_is_refused_by_the_tensor_that_differs) {
  const auto source = random_model<mlp>(4);
  shared_owner<net> o;
  const auto ref = o.add(*source);
  o.serve();
  const auto view = shared_net<tiny>::view(o.address, {ref.id, 0, 0});
  EXPECT_EQ(code_of(view), errc::schema_mismatch);
}

TEST(SharedView, It_is_unverified_only_if_that_is_asked_for) {
  using unverified = raw_net<mlp, tp::unverified, tp::shared_memory>;
  const auto source = random_model<mlp>(5);
  shared_owner<net> o;
  const auto ref = o.add(*source, {.recipients = 2});
  o.serve();
  const auto refused = unverified::view(o.address, ref);
  EXPECT_EQ(code_of(refused), errc::not_verifiable);
  const auto expect_unverified = [](const auto& view) {
    ASSERT_TRUE(succeeded(view));
    EXPECT_EQ(view->how().outcome, tp::outcome::completed_unverified);
    EXPECT_EQ(view->how().digest, 0u);
  };
  expect_unverified(unverified::view(o.address, ref, {.unverified = true}));
  expect_unverified(net::view(o.address, ref, {.unverified = true}));
  o.stop();
  EXPECT_EQ(o.owner.status_of(ref)->completed_unverified, 2u);
}

TEST(SharedView, A_source_that_was_changed_after_its_digest_fails_the_view) {
  const auto shared = shared_random(6);
  shared_owner<net> o;
  const auto ref = o.add(shared);
  shared->hidden.b[7] += 1;
  o.serve();
  const auto view = net::view(o.address, ref);
  EXPECT_EQ(code_of(view), errc::digest_mismatch);
  o.stop();
  EXPECT_TRUE(runs_until("the owner has read that", o.owner, [&] { return o.owner.status_of(ref)->failed == 1; }));
}

TEST(SharedView, A_second_view_through_the_same_object_is_of_what_is_seen_then) {
  const auto first = shared_random(4), second = shared_random(5);
  shared_owner<net> o;
  const auto one = o.add(first, {.recipients = 3}), two = o.add(second, {.recipients = 3});
  o.serve();
  tp::viewed_tensors seen(nullptr);
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(tp::shared_memory::view<net::parts>(o.address, one, seen, {}));
    EXPECT_TRUE(same(seen.tensors(), *first));
    ASSERT_TRUE(tp::shared_memory::view<net::parts>(o.address, two, seen, {}));
    EXPECT_TRUE(same(seen.tensors(), *second));
  }
  first->step += 1;  // after its digest
  EXPECT_EQ(code_of(tp::shared_memory::view<net::parts>(o.address, one, seen, {})), errc::digest_mismatch);
  ASSERT_TRUE(tp::shared_memory::view<net::parts>(o.address, two, seen, {.unverified = true}));
  EXPECT_TRUE(same(seen.tensors(), *second));
  o.stop();
}

TEST(SharedView, An_owner_that_passes_no_memory_is_refused_by_name) {
  using none = raw_net<mlp, tp::basic_shared_memory<tp::unix_access::same_user, 0, false>>;
  const auto source = random_model<mlp>(7);
  shared_owner<none> o;
  const auto ref = o.add(*source);
  o.serve();
  const auto view = net::view(o.address, ref);
  EXPECT_EQ(code_of(view), errc::memory_not_shared);
}

TEST(SharedView, A_view_outlives_the_reference_and_its_owner) {
  tp::result<tp::shared_view<net::parts>> view = tp::failure(errc::withdrawn);
  const auto source = random_model<mlp>(8);
  {
    shared_owner<net> o;
    const auto ref = o.add(*source);
    o.serve();
    view = net::view(o.address, ref);
    o.stop();
    EXPECT_TRUE(o.owner.withdraw(ref));
  }
  ASSERT_TRUE(view);
  EXPECT_TRUE(same(view->tensors(), *source));
}

TEST(SharedView, A_model_can_be_published_again_after_it_was_trained_further) {
  const auto shared = shared_random(9);
  shared_owner<net> o;
  for (int round = 0; round < 3; ++round) {
    shared->step = round;
    const auto ref = o.add(shared);
    o.serve();
    const auto view = net::view(o.address, ref);
    ASSERT_TRUE(succeeded(view));
    EXPECT_EQ((*view->model())->step, round);
    o.stop();
    EXPECT_EQ(o.owner.status_of(ref)->bytes_sent, 0u);
  }
}

/// Whether `f` ends a child process by SIGSEGV.
template <class F>
bool faults(F f) {
  return in_a_process([&] {
           ::signal(SIGSEGV, SIG_DFL);
           f();
           return 0;
         }) == -SIGSEGV;
}

TEST(SharedView, A_write_ends_the_program_that_writes_and_changes_nothing) {
  const auto shared = shared_random(10);
  shared_owner<net> o;
  const auto ref = o.add(shared);
  o.serve();
  const auto view = net::view(o.address, ref);
  o.stop();
  ASSERT_TRUE(view);
  const auto step = shared->step;
  auto* const there = const_cast<mlp*>(*view->model());
  EXPECT_TRUE(faults([&] { *const_cast<volatile std::int64_t*>(&there->step) = step + 1; }));
  EXPECT_EQ(shared->step, step);
}

TEST(SharedView, A_writable_view_is_a_copy_of_the_pages_that_are_written) {
  const auto shared = shared_random(11);
  shared_owner<net> o;
  const auto ref = o.add(shared, {.recipients = 2});
  o.serve();
  tp::viewed_tensors mine(nullptr, true), other(nullptr);
  ASSERT_TRUE(tp::shared_memory::view<net::parts>(o.address, ref, mine, {}));
  ASSERT_TRUE(tp::shared_memory::view<net::parts>(o.address, ref, other, {}));
  o.stop();
  const auto before = *shared->hidden.w[3];
  auto* const element = reinterpret_cast<float*>(const_cast<std::byte*>(mine.tensors().address(2)));
  element[0] += 1;
  EXPECT_EQ(*shared->hidden.w[3], before);
  EXPECT_TRUE(same(other.tensors(), *shared));
}

}  // namespace shm_view_test
