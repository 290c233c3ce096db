// Tensors that have changed, over several connections.
#include "published_tensors.hpp"
#include "support/threads.hpp"

#include <tensorpull/satellites/parallel/parallel_pull.hpp>
#include <tensorpull/transports/over/tcp/tcp_listener.hpp>

#include <array>
#include <atomic>
#include <stop_token>

namespace changed_over_several_test {

using namespace test;
using namespace test::changed;

TEST(ChangedOverSeveral, They_come_over_all_connections_at_once) {
  const tensors now = trained(with_adapters());
  using one = over<tp::adaptive_bytes<4_KiB, 2_MiB>, tp::tcp>;
  publication<one> p(now);
  const std::vector<std::string> twice{p.address(), p.address()};
  const std::array<std::string_view, 2> both{twice[0], twice[1]};
  comes_by_parts(tp::parallel_addresses<tp::tcp>(both, 3), p);
}

/// Passes on what a recipient says once the recipient has gone.
class late_line {
 public:
  explicit late_line(std::uint16_t to)
      : listener_(*tp::tcp_listener::open(any_port)), thread_([this, to](const std::stop_token& stop) {
          auto near = listener_.accept(20s, stop);
          if (!near) return;
          const auto said = raw_peer(std::move(*near)).hear(~std::size_t{0});
          raw_peer far(to);
          far.say(said);
          passed = !said.empty();
          (void)far.hear(1, 1s);
        }) {}
  std::string address() const { return local(listener_.port()); }
  void join() { thread_.join(); }
  std::atomic<bool> passed{false};

 private:
  tp::tcp_listener listener_;
  joined_thread thread_;
};

TEST(ChangedOverSeveral, A_line_whose_request_is_heard_late_counts_nobody_else) {
  using shared = over<tp::fixed_bytes<64_KiB>, tp::tcp>;
  tensors old;
  old.add("a", {dtype::f32, {500'000}}, 1);
  old.add("b", {dtype::f32, {500'000}}, 2);
  old.add("c", {dtype::f32, {10}}, 3);
  tensors now = old;
  for (const char* const name : {"a", "b"}) now.all[name].second[7] ^= std::byte{1};
  tensors lie = now;
  lie.all["a"] = old.all["a"];
  const std::string text = digits_of(lie);
  const tp::metadata_entry said[] = {{tp::tensor_digests_key, text}};
  publication<shared> p(now, {.recipients = 3}, said);
  late_line late(p.owner->port());
  const std::vector<std::string> where{p.address(), late.address()};
  const std::array<std::string_view, 2> both{where[0], where[1]};
  auto model = old.image();
  ASSERT_TRUE(tp::download_changes<shared>(tp::parallel_addresses<tp::tcp>(both, 2), p.ref, model));
  EXPECT_EQ(old, now);
  late.join();
  EXPECT_TRUE(late.passed);
  p.server.reset();
  const auto status = *p.owner->status_of(p.ref);
  EXPECT_EQ(status.completed, 1u);
  EXPECT_EQ(status.acquired, 1u);
}

}  // namespace changed_over_several_test
