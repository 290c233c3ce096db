// Q1: every allocation of a transfer over TCP fails once, from opening the owner to the last answer, and after each the
// world goes on.
#include "support/allocation_counter.hpp"
#include "transports/network.hpp"

#include <tensorpull/testing/failing_allocation.hpp>

#include <vector>

namespace allocations_test {

using namespace test;
template <class Transport>
using net_over = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<16_KiB>, tp::chunk_and_image_digest, Transport>;

/// A connection to an owner of the same thread: whenever the recipient would wait, the owner works.
template <class Owner>
struct beside_owner {
  tp::posix_stream stream;
  Owner* owner;

  tp::io_result read_some(std::span<const byte_span> s) noexcept { return stream.read_some(s); }
  tp::io_result write_some(std::span<const const_byte_span> s) noexcept { return stream.write_some(s); }
  tp::io_ready wait(bool read, bool write, std::chrono::milliseconds) noexcept {
    int turns = 0;
    owner->run([&](const auto&) { return turns++ == 1; });
    return stream.wait(read, write, 0ms);
  }
};

template <class Net, class Owner = typename Net::downloader>
tp::result<tp::receipt> pull(Owner& owner, const tp::reference& ref, mlp& mine) {
  auto stream = tp::tcp_connect(local(owner.port()), steady_clock::now() + 10s);
  if (!stream) return tp::failure(stream.error());
  auto s = tp::stream_session<typename Net::parts, beside_owner<Owner>>::over({std::move(*stream), &owner});
  if (!s) return tp::failure(s.error());
  return s->download_tensors(ref, mine, {.per_request_timeout = 5s});
}
/// Lets the owner see that its recipients left.
template <class Owner>
void drain(Owner& owner) {
  const auto end = steady_clock::now() + 10s;
  owner.run([&](const auto& o) { return o.connections() == 0 || steady_clock::now() > end; });
}

struct outcome {
  tp::result<void> made{};  ///< owner and publication
  tp::result<tp::receipt> first{tp::failure(errc::invalid_argument)}, again{tp::failure(errc::invalid_argument)};
  bool reached = false, exact = false;
  std::size_t connections = 0;
};
/// Everything that allocates in a transfer; `nth` of it fails. Afterwards the same owner, or a new one if there was
/// none, has to serve.
template <class Net>
outcome transfer(const mlp& source, mlp& mine, std::uint64_t nth, bool& happened, std::uint64_t& count) {
  outcome o;
  std::optional<typename Net::downloader> owner;
  std::optional<tp::reference> ref;
  {
    const tp::testing::failing_allocation fails(nth);
    auto opened = Net::downloader::open({});
    if (!opened) {
      o.made = tp::failure(opened.error());
    } else {
      owner.emplace(std::move(*opened));
      auto published = owner->add_tensors(mlp(source), {});
      if (!published) o.made = tp::failure(published.error());
      else ref = *published;
    }
    if (ref) {
      o.reached = true;
      o.first = pull<Net>(*owner, *ref, mine);
      drain(*owner);
    }
    happened = fails.happened(), count = fails.count();
  }
  if (!owner) owner.emplace(std::move(*Net::downloader::open({})));
  if (!ref) ref = *owner->add_tensors(mlp(source), {});
  std::memset(&mine, 0, sizeof mine);
  o.again = pull<Net>(*owner, *ref, mine);
  drain(*owner);
  o.exact = same(source, mine);
  o.connections = owner->connections();
  return o;
}

template <class Net>
void fail_each_allocation() {
  const auto source = random_model<mlp>(1), mine = blank<mlp>();
  bool happened = false;
  std::uint64_t count = 0;
  (void)transfer<Net>(*source, *mine, 0, happened, count);  // warm: what threads and libraries make once
  (void)transfer<Net>(*source, *mine, 0, happened, count);
  const std::uint64_t all = count;
  const std::size_t files = descriptors();
  std::uint64_t errors = 0, survived = 0;
  for (std::uint64_t nth = 1;; ++nth) {
    ASSERT_LT(nth, all + 100);
    const live_heap before = heap_now();
    const outcome o = transfer<Net>(*source, *mine, nth, happened, count);
    const live_heap after = heap_now();
    EXPECT_EQ(after.blocks, before.blocks) << nth;
    EXPECT_EQ(after.bytes, before.bytes) << nth;
    EXPECT_EQ(descriptors(), files) << nth;
    ASSERT_TRUE(o.again) << nth << ": " << to_string(o.again.error().code);
    EXPECT_TRUE(o.exact) << nth;
    EXPECT_EQ(o.connections, 0u) << nth;
    if (!happened) {
      EXPECT_TRUE(o.first);
      break;
    }
    const bool named = !o.made ? o.made.error() == errc::out_of_memory || o.made.error() == errc::io
                               : o.first || o.first.error() == errc::out_of_memory ||
                                     o.first.error() == errc::connection_lost;
    EXPECT_TRUE(named) << nth << ": " << to_string(!o.made ? o.made.error().code : o.first.error().code);
    ++(o.made && o.first ? survived : errors);
  }
  testing::Test::RecordProperty("allocations", static_cast<int>(all));
  EXPECT_GE(errors, 8u) << "of " << all << "; got past " << survived;
}

TEST(Torture, Q1_whichever_allocation_of_a_transfer_over_tcp_fails_it_is_a_named_error_and_the_next_transfer_is_exact) {
  fail_each_allocation<net_over<tp::tcp>>();
}
TEST(Torture, Q1_the_same_where_several_threads_may_run_the_owner) {
  fail_each_allocation<net_over<tp::tcp_on_threads>>();
}

}  // namespace allocations_test
