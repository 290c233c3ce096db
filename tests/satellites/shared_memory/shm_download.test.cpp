// Pulls over shared memory: one copy into the recipient's own tensors, and what is sent over the socket instead.
#include "shm.hpp"
#include "support/few_descriptors.hpp"
#include "support/models.hpp"

#include <algorithm>
#include <set>

namespace shm_download_test {

using namespace test;
using net = shared_net<>;

/// A model in memory that can be shared.
tp::shared_model<mlp> filled(std::uint64_t seed) {
  auto made = tp::make_shared_model<mlp>();
  EXPECT_TRUE(made);
  generator(seed).fill(std::as_writable_bytes(std::span(made->get(), 1)));
  return *made;
}

constexpr std::uint64_t image_bytes = tp::raw_tensors<mlp>::schema().image_bytes;

template <class Net, class Published>
void expect_download(const Published& published, const mlp& source, tp::outcome outcome, std::uint64_t sent,
                     const tp::pull_options& options = {}) {
  shared_owner<Net> o;
  const auto ref = o.add(published);
  o.serve();
  const auto copy = blank<mlp>();
  const auto done = Net::download_tensors(o.address, ref, *copy, options);
  ASSERT_TRUE(succeeded(done));
  o.stop();
  EXPECT_TRUE(same(*copy, source));
  EXPECT_EQ(done->outcome, outcome);
  EXPECT_TRUE(done->confirmed);
  EXPECT_EQ(done->bytes, image_bytes);
  EXPECT_EQ(done->version, ref.version);
  const auto counts = o.owner.status_of(ref);
  ASSERT_TRUE(counts);
  EXPECT_EQ(counts->bytes_sent, sent);
  EXPECT_EQ(counts->final(), 1u);
  EXPECT_EQ(counts->completed, outcome == tp::outcome::completed ? 1u : 0u);
  EXPECT_TRUE(o.owner.settled(ref));
}

TEST(SharedMemory, A_model_that_was_allocated_there_lands_the_same) {
  const auto source = random_model<mlp>(2);
  const auto shared = tp::make_shared_model<mlp>();
  ASSERT_TRUE(shared);
  std::memcpy(shared->get(), source.get(), sizeof(mlp));
  expect_download<net>(*shared, *source, tp::outcome::completed, 0);
}
TEST(SharedMemory, Without_a_digest_the_outcome_says_so) {
  using unverified = tp::pipeline<tp::raw_tensors<mlp>, tp::whole, tp::unverified, tp::shared_memory>;
  const auto source = random_model<mlp>(3);
  expect_download<unverified>(*source, *source, tp::outcome::completed_unverified, 0);
}
TEST(SharedMemory, Digests_of_chunks_are_the_owners_so_their_bytes_are_sent) {
  using checked = raw_net<mlp, tp::chunk_and_image_digest, tp::shared_memory>;
  const auto source = random_model<mlp>(4);
  expect_download<checked>(*source, *source, tp::outcome::completed, image_bytes);
}
TEST(SharedMemory, What_is_above_the_bound_for_copies_is_sent) {
  using bounded = raw_net<mlp, tp::basic_shared_memory<tp::unix_access::same_user, image_bytes - 1, false>>;
  const auto source = random_model<mlp>(5);
  expect_download<bounded>(*source, *source, tp::outcome::completed, image_bytes);
}
TEST(SharedMemory, Several_recipients_share_one_copy) {
  using bounded = raw_net<mlp, tp::basic_shared_memory<tp::unix_access::same_user, image_bytes, false>>;
  const auto source = random_model<mlp>(6);
  shared_owner<bounded> o;
  const auto ref = o.add(*source, {.recipients = 3});
  o.serve();
  for (int i = 0; i < 3; ++i) {
    const auto copy = blank<mlp>();
    ASSERT_TRUE(bounded::download_tensors(o.address, ref, *copy));
    EXPECT_TRUE(same(*copy, *source));
  }
  o.stop();
  EXPECT_EQ(o.owner.status_of(ref)->bytes_sent, 0u);
  EXPECT_EQ(o.owner.status_of(ref)->completed, 3u);
}
TEST(SharedMemory, The_memory_of_a_settled_reference_makes_room_for_the_next) {
  using bounded = raw_net<mlp, tp::basic_shared_memory<tp::unix_access::same_user, image_bytes, false>>;
  shared_owner<bounded> o;
  const auto before = descriptors();
  for (std::uint64_t round = 0; round < 3; ++round) {
    const auto source = random_model<mlp>(7 + round);
    const auto ref = o.add(*source);
    o.serve();
    const auto copy = blank<mlp>();
    ASSERT_TRUE(bounded::download_tensors(o.address, ref, *copy));
    o.stop();
    EXPECT_TRUE(same(*copy, *source));
    EXPECT_EQ(o.owner.status_of(ref)->bytes_sent, 0u);
  }
  o.owner.run([&](const auto&) { return descriptors() <= before; }, within(20s));
  EXPECT_LE(descriptors(), before);
}

TEST(SharedMemory, Equal_bytes_that_are_published_again_from_other_memory_are_given_from_there) {
  const auto first = filled(1), second = filled(1);
  shared_owner<net> o;
  const auto before = o.add(first, {.recipients = 1}), ref = o.add(second, {.recipients = 3, .id = before.id});
  ASSERT_EQ(before.version, ref.version);
  first->step = 42;  // it is not published any more: its program goes on with it
  o.serve();
  EXPECT_TRUE(arrives<net>(o.address, ref, *second));
  const auto view = net::view(o.address, ref, {.unverified = true});
  ASSERT_TRUE(view);
  EXPECT_TRUE(same(**view->model(), *second));
}
/// An owner without connections, and the descriptor of its memory that a recipient is about to be sent; -1: none is.
struct sharing {
  using owner_type = tp::detail::sharing_owner<tp::owner<tp::xxhash_digest>, 1 << 20>;

  int asked() {
    owner_type::peer recipient;
    tp::frame asked;
    asked.kind = tp::frame_kind::describe;
    asked.ref = {1, 2};
    asked.memory = true;
    tp::pending_reply r;
    EXPECT_TRUE(o.handle(recipient, asked, r));
    std::uint64_t allowance = 1 << 20;
    EXPECT_EQ(o.digest(r, allowance, slice), tp::digest_state::ready);
    const auto fd = o.descriptors(r);  // and it is not sent yet
    return fd.empty() ? -1 : fd[0];
  }

  tp::owner_storage<4, 32> storage{};
  generator random{5};
  owner_type o{storage, [this] { return random(); }};
  byte_vector slice = byte_vector(4096);
};
TEST(SharedMemory, Q2_a_copy_that_had_no_descriptor_once_is_made_for_the_next_who_asks) {
  sharing s;
  model m;
  m.add("w", dtype::f32, {16}).ready().fill(1);
  EXPECT_TRUE(s.o.publish(m.source(), version_of(m), true, {1, 2}, 2));
  {
    const few_descriptors limit(0);
    EXPECT_EQ(s.asked(), -1);
  }
  EXPECT_GE(s.asked(), 0);
}
TEST(SharedMemory, What_replaces_a_model_while_its_memory_is_sent_has_memory_of_its_own) {
  sharing s;
  const auto sent = [&](std::uint64_t fill) {
    model m;
    m.add("w", dtype::f32, {16}).ready().fill(fill);
    EXPECT_TRUE(s.o.publish(m.source(), version_of(m), true, {1, 2}, 2));
    return s.asked();
  };
  std::vector<int> all;
  for (std::uint64_t fill = 1; fill < 7; ++fill) all.push_back(sent(fill));
  EXPECT_EQ(std::ranges::count(all, -1), 0);
  EXPECT_EQ(std::set<int>(all.begin(), all.end()).size(), all.size());
}
TEST(SharedMemory, A_model_that_is_published_again_and_again_under_one_ID_takes_one_place) {
  const auto model = filled(1), other = filled(2);
  shared_owner<net> o;
  auto ref = o.add(model, {.recipients = 1});
  for (int i = 0; i < 70; ++i) ref = o.add(model, {.recipients = 1, .id = ref.id});
  const auto last = o.add(other, {.recipients = 1});
  o.serve();
  const auto view = net::view(o.address, last);
  EXPECT_TRUE(succeeded(view));
}

TEST(SharedMemory, A_session_pulls_from_memory_in_both_directions) {
  using end = tp::stream_session<net::parts, tp::shared_stream>;
  int fd[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd), 0);
  auto a = end::over(tp::shared_stream(tp::unix_stream(fd[0]))),
       b = end::over(tp::shared_stream(tp::unix_stream(fd[1])));
  const auto one = random_model<mlp>(9), other = random_model<mlp>(10);
  const auto from_a = a->add_tensors(*one, {.recipients = 1}), from_b = b->add_tensors(*other, {.recipients = 1});
  joined_thread far([&] {
    const auto copy = blank<mlp>();
    EXPECT_TRUE(b->download_tensors(*from_a, *copy));
    EXPECT_TRUE(same(*copy, *one));
    EXPECT_TRUE(b->serve(tp::until_settled(*from_b), 20s));
  });
  EXPECT_TRUE(a->serve(tp::until_settled(*from_a), 20s));
  const auto copy = blank<mlp>();
  EXPECT_TRUE(a->download_tensors(*from_b, *copy));
  EXPECT_TRUE(same(*copy, *other));
  EXPECT_EQ(a->status_of(*from_a)->bytes_sent, 0u);
}

TEST(SharedMemory, Several_threads_run_an_owner_while_models_come_and_go) {
  using threads = raw_net<mlp, tp::shared_memory_on_threads>;
  const auto before = descriptors();
  {
    shared_owner<threads> o;
    const auto source = random_model<mlp>(12);
    serving server(o.owner, 3);
    on_threads(4, [&](std::size_t i) {
      for (std::size_t round = 0; round < 25; ++round) {
        const auto ref = o.add(*source);
        const auto copy = blank<mlp>();
        if (round % 5 == i) {
          EXPECT_TRUE(o.owner.withdraw(ref));
        }
        const auto done = threads::download_tensors(o.address, ref, *copy, {.retry = {.retries = 0}});
        EXPECT_EQ(done.has_value(), round % 5 != i);
        if (done) {
          EXPECT_TRUE(same(*copy, *source));
        }
      }
    });
  }
  EXPECT_EQ(descriptors(), before);
}

}  // namespace shm_download_test
