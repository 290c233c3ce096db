// Members of a swarm whose models land in files: they give each other what has landed, and nobody the header, which a
// file's view does not have.
#include "../proved_model.hpp"
#include "satellites/parallel/swarm_in_hand.hpp"
#include "support/own_folder.hpp"

#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/satellites/parallel/swarm/swarm_member.hpp>

#include <atomic>
#include <optional>

namespace files_in_swarm_test {

using namespace test;
using namespace test::proved;
using file_net = tp::pipeline<tp::tensor_list, tp::fixed_bytes<256_KiB>, tp::tcp>;
using file_member = tp::swarm_member<file_net>;

const published& file_model() {
  static const published one(bytes_model(40 * group - 100, 3));
  return one;
}

auto slow_door(file_net::downloader& owner) {
  tp::host_options options;
  options.limits.owner_bytes_per_second = 2'000'000;
  return *tp::open_swarm_door(owner, any_port, options);
}
/// An owner at a door that may send 2 MB a second, so that members are there at the same time.
class slow_owner {
 public:
  slow_owner() : owner_(*file_net::downloader::open({})), door_(slow_door(owner_)) {
    file_model().publish_at(owner_);
    server_.emplace(owner_);
  }
  std::string address() const { return local(door_.port()); }

 private:
  file_net::downloader owner_;
  decltype(slow_door(std::declval<file_net::downloader&>())) door_;
  std::optional<serving> server_;
};

/// Whether the file has the bytes of the model.
bool has_the_model(const std::string& path) { return file_root(path) == file_model().ref.root; }

TEST(SwarmFiles, Members_give_each_other_what_has_landed) {
  const own_folder here;
  slow_owner owner;
  std::atomic<std::uint64_t> sent{0};
  tp::proved_reference known = file_model().ref;
  known.model.fingerprint = file_model().now.source().schema->fingerprint;  // which a file's view does not have
  joined_threads pulling(2, [&](std::size_t i, const std::stop_token&) {
    auto me = file_member::open(any_port, owner.address());
    ASSERT_TRUE(me);
    const std::string path = here / (i == 0 ? "one" : "two");
    auto file = tp::safetensors_file::create(path);
    ASSERT_TRUE(file);
    const auto done = tp::pull_proved<file_net>(*me, known, *file);
    EXPECT_TRUE(succeeded(done));
    EXPECT_EQ(done->wrong, 0u);
    EXPECT_TRUE(has_the_model(path));
    sent += me->bytes_sent();
  });
  pulling.join();
  EXPECT_GT(sent, 0u);
}

TEST(SwarmFiles, Members_that_have_lost_their_owner_too_early_do_not_wait_for_each_other) {
  const own_folder here;
  std::optional<slow_owner> owner(std::in_place);
  std::atomic<int> begun{0};
  std::atomic<std::uint64_t> sent{0};
  joined_threads pulling(2, [&](std::size_t i, const std::stop_token&) {
    auto me = file_member::open(any_port, owner->address());
    ASSERT_TRUE(me);
    auto file = tp::safetensors_file::create(here / (i == 0 ? "one" : "two"));
    ASSERT_TRUE(file);
    tp::pull_options how;
    how.retry.retries = 1;
    how.retry.longest_delay = 10ms;
    how.per_request_timeout = 20s;
    bool told = false;
    const auto note = [&](const tp::progress_event& e) {
      if (e.bytes_done > 4 * group && me->members() == 1 && !std::exchange(told, true)) ++begun;
    };
    how.progress = note;
    how.progress_interval = 1ms;
    const auto done = tp::pull_proved<file_net>(*me, file_model().ref, *file, {}, how);
    ASSERT_FALSE(done);
    // the second one may be alone by then
    EXPECT_TRUE(done.error() == tp::errc::connection_lost || done.error() == tp::errc::connection_failed);
    sent += me->bytes_sent();
  });
  EXPECT_TRUE(eventually("both know each other", [&] { return begun == 2; }));
  owner.reset();
  pulling.join();
  EXPECT_GT(sent, 0u) << "what is no longer served was sent";
}

TEST(SwarmFiles, Their_header_is_given_to_nobody) {
  const own_folder here;
  slow_owner owner;
  auto me = file_member::open(any_port, owner.address());
  ASSERT_TRUE(me);
  model other = bytes_model(40 * group - 100, 8);
  std::atomic<bool> begun{false};
  std::optional<tp::result<tp::receipt>> stranger;
  std::uint64_t landed = 0;
  joined_threads asking(1, [&](std::size_t, const std::stop_token& stop) {
    (void)eventually("the member has something", [&] { return begun.load(); });
    tp::land to(other.destination());
    tp::pull_options how;
    const auto note = [&](const tp::progress_event& e) { landed = std::max(landed, e.bytes_done); };
    how.progress = note;
    how.progress_interval = 1ms;
    how.retry.retries = 1'000'000;
    how.stop = stop;
    stranger.emplace(file_net::pull(local(me->port()), file_model().ref.model, to, how));
  });
  auto file = tp::safetensors_file::create(here / "copy");
  ASSERT_TRUE(file);
  tp::pull_options how;
  const auto note = [&](const tp::progress_event& e) { begun = begun || e.bytes_done > 4 * group; };
  how.progress = note;
  how.progress_interval = 1ms;
  EXPECT_TRUE(succeeded(tp::pull_proved<file_net>(*me, file_model().ref, *file, {}, how)));
  (void)me->serve(200ms);
  asking.request_stop();
  asking.join();
  ASSERT_TRUE(stranger);
  ASSERT_FALSE(*stranger);
  EXPECT_NE(stranger->error(), tp::errc::digest_mismatch);
  EXPECT_EQ(landed, 0u) << "it waited";
}

}  // namespace files_in_swarm_test
