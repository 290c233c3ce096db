// Members of a swarm over TCP: they take a model from its owner and from each other.
#include "../proved_model.hpp"

#include "support/clocks.hpp"
#include "transports/network.hpp"

#include <tensorpull/satellites/parallel/swarm/swarm_door.hpp>
#include <tensorpull/satellites/parallel/swarm/swarm_member.hpp>

#include <atomic>
#include <thread>

namespace swarm_test {

using namespace test;
using namespace test::proved;
using swarm_net = tp::pipeline<tp::tensor_list, tp::fixed_bytes<256_KiB>, tp::tcp>;

/// An owner with a door, at a rate.
class owner_of {
 public:
  explicit owner_of(const published& of, std::uint32_t recipients, std::uint64_t rate = 0)
      : of_(of), owner_(*swarm_net::downloader::open({})) {
    tp::publish_options how;
    how.id = of.ref.model.id;
    how.version = of.ref.model.version;
    how.recipients = recipients;
    EXPECT_TRUE(succeeded(owner_.add_image(of.now.source(), how)));
    how.id = of.ref.tree.id;
    how.version = of.ref.tree.version;
    how.recipients = 0;
    EXPECT_TRUE(succeeded(owner_.add_image(of.tree.image().source(), how)));
    tp::host_options options;
    options.limits.owner_bytes_per_second = rate;
    door_.emplace(*tp::open_swarm_door(owner_, std::string_view("127.0.0.1:0"), options));
    server_.emplace(owner_);
  }
  std::string address() const { return local(door_->port()); }
  tp::publication_status counts() {
    server_.reset();
    return *owner_.status_of(of_.ref.model);
  }

 private:
  using door_type = std::remove_reference_t<decltype(*tp::open_swarm_door(std::declval<swarm_net::downloader&>(),
                                                                          std::string_view()))>;
  const published& of_;
  swarm_net::downloader owner_;
  std::optional<door_type> door_;
  std::optional<serving> server_;
};

struct outcome {
  std::optional<tp::result<tp::proved_receipt>> done;
  bool right = false;
  std::uint64_t sent = 0;
  double seconds = 0;
};

TEST(Swarm, Sixteen_take_about_one_image_from_the_owner) {
  constexpr std::uint64_t rate = 4'000'000;
  const published p(bytes_model(16 * 1024 * 1024, 3));
  owner_of owner(p, 16, rate);
  std::vector<outcome> all(16);
  std::vector<std::jthread> threads;
  std::atomic<int> left{16};
  const auto from = std::chrono::steady_clock::now();
  for (outcome& o : all)
    threads.emplace_back([&] {
      tp::swarm_options options;
      options.host.limits.owner_bytes_per_second = rate;
      auto me = tp::swarm_member<swarm_net>::open("127.0.0.1:0", owner.address(), options);
      ASSERT_TRUE(succeeded(me));
      model into = bytes_model(16 * 1024 * 1024, 9);
      tp::land to(into.destination());
      o.done = tp::pull_proved<swarm_net>(*me, p.ref, to);
      o.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
      --left;
      while (left > 0) (void)me->serve(100ms);
      o.sent = me->bytes_sent();
      o.right = into.image_bytes() == p.now.image_bytes();
    });
  threads.clear();
  double last = 0;
  for (const outcome& o : all) {
    ASSERT_TRUE(o.done);
    ASSERT_TRUE(succeeded(*o.done));
    EXPECT_TRUE(o.right);
    EXPECT_EQ((*o.done)->wrong, 0u);
    EXPECT_TRUE((*o.done)->last.confirmed);
    last = std::max(last, o.seconds);
    std::printf("%.2f s, sent %.2f images\n", o.seconds, static_cast<double>(o.sent) / (16 * 1024 * 1024));
  }
  const auto counts = owner.counts();
  EXPECT_EQ(counts.completed, 16u);
  std::printf("last %.2f s of %.2f, owner sent %.2f images\n", last, 16 * 1024 * 1024 / double(rate),
              static_cast<double>(counts.bytes_sent) / (16 * 1024 * 1024));
  EXPECT_LE(counts.bytes_sent, 2u * 16 * 1024 * 1024);
}

}  // namespace swarm_test
