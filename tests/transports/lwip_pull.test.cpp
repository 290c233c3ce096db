// A device whose network is lwIP pulls from an ordinary TCP owner, with the functions of lwip_subset.hpp and no others.
#define LWIP_COMPAT_SOCKETS 0
#include "transports/lwip_names.hpp"  // first: this host's headers make macros of the names in it

#include "support/allocation_counter.hpp"
#include "support/clocks.hpp"
#include "transports/lwip_device.hpp"
#include "transports/lwip_shim.hpp"
#include "transports/network.hpp"

#include <tensorpull/links/lwip/lwip_stream.hpp>
#include <tensorpull/pull/device_pull.hpp>
#include <tensorpull/system/host_platform.hpp>
#include <tensorpull/testing/conformance/transport_conformance.hpp>

#include <functional>
#include <stop_token>

BOOST_HANA_ADAPT_STRUCT(test::device_model, weight, bias, mask);

namespace lwip_pull_test {

using namespace test;
using net = raw_net<device_model, tp::tcp>;

/// The device's memory: what lies beside the model must stay.
struct device_memory {
  std::array<std::byte, 64> before{};
  device_model model{};
  std::array<std::byte, 64> after{};
  bool kept() const {
    const auto zero = [](std::byte b) { return b == std::byte{}; };
    return std::all_of(before.begin(), before.end(), zero) && std::all_of(after.begin(), after.end(), zero);
  }
};

/// What is done to the answers of one connection.
struct mischief {
  std::size_t most = ~std::size_t{0};  ///< bytes after which no more come
  bool close = true;  ///< whether the connection is closed then, or stalls
  std::size_t flip = ~std::size_t{0};  ///< the byte in which a bit is changed
};

class LwipPull : public ::testing::Test {
 protected:
  LwipPull() : owner(net::downloader::open()) {
    ref = *owner->add_tensors(*source);
    server.emplace(*owner);
    device_stops = false;
    lwip_shim::most = 536;
    lwip_shim::fails_after = -1;
    lwip_shim::open = lwip_shim::waited = 0;
  }
  ~LwipPull() override {
    EXPECT_EQ(lwip_shim::open, 0) << "a socket was not closed";
    EXPECT_EQ(lwip_shim::waited, 0) << "a call waited for the network";
    EXPECT_TRUE(mine->kept());
  }
  tp::result<tp::receipt> pull(std::uint16_t port, std::uint32_t timeout_ms = 20'000, std::uint32_t retries = 3) {
    return device_pull({.port = port, .ref = ref.id, .timeout_ms = timeout_ms, .retries = retries, .cursor = cursor},
                       mine->model);
  }
  /// Stands between device and owner; the connection i is treated as plan[i], and those behind the plan are left in
  /// peace.
  void relay(raw_listener& listener, const std::vector<mischief>& plan, const std::stop_token& stop) {
    for (std::size_t i = 0; !stop.stop_requested();) {
      auto called = listener.next(20ms);
      if (!called) continue;
      raw_peer client = std::move(*called), server_end(owner->port());
      const mischief m = i < plan.size() ? plan[i] : mischief{};
      ++i;
      byte_vector piece(4096);
      for (std::size_t carried = 0; !stop.stop_requested();) {
        const auto asked = read_some(client.stream(), piece);
        if (asked.status == tp::io_status::closed) break;
        if (asked.bytes > 0 && !server_end.say(std::span(piece).first(asked.bytes))) break;
        const auto answered = carried < m.most ? read_some(server_end.stream(), piece) : tp::io_result{};
        const std::size_t n = std::min(answered.bytes, m.most - carried);
        if (m.flip >= carried && m.flip < carried + n) piece[m.flip - carried] ^= std::byte{0x10};
        if (n > 0 && !client.say(std::span(piece).first(n))) break;
        answers += n;
        if ((carried += n) == m.most && m.close) break;
        if (asked.bytes + n == 0) client.stream().wait(true, false, 1ms);
      }
    }
  }
  joined_thread between(raw_listener& listener, std::vector<mischief> plan) {
    answers = 0;
    return joined_thread(
        [this, &listener, plan = std::move(plan)](const std::stop_token& stop) { relay(listener, plan, stop); });
  }
  /// Says this to every peer that calls, and stays silent.
  tp::result<tp::receipt> pull_from_liar(std::function<void(raw_peer&)> lie) {
    raw_listener listener;
    joined_thread liar([&] {
      raw_peer client = listener.accept();
      lie(client);
      (void)client.hear_end();
    });
    return pull(listener.port(), 2000, 0);
  }

  std::unique_ptr<device_model> source = random_model<device_model>(1);
  std::unique_ptr<device_memory> mine = std::make_unique<device_memory>();
  tp::result<net::downloader> owner;
  tp::reference ref{};
  tp::resume_cursor* cursor = nullptr;
  std::atomic<std::size_t> answers{0};
  std::optional<serving> server;
};

TEST_F(LwipPull, A_model_arrives_from_an_ordinary_owner) {
  const auto done = pull(owner->port());
  ASSERT_TRUE(confirmed(done));
  EXPECT_EQ(done->chunks, (done->bytes + 2047) / 2048);
  EXPECT_TRUE(same(mine->model, *source));
}

TEST_F(LwipPull, Calls_that_move_one_byte_are_enough) {
  lwip_shim::most = 1;
  const auto done = pull(owner->port());
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(mine->model, *source));
}

TEST_F(LwipPull, Nobody_listens) {
  const own_port nobody;
  const auto done = pull(nobody);
  ASSERT_EQ(code_of(done), errc::connection_failed);
  EXPECT_EQ(done.error().system, ECONNREFUSED);
}

TEST_F(LwipPull, T2_An_owner_that_says_nothing_is_given_up) {
  raw_listener silent;
  const auto done = pull(silent.port(), 200, 1);
  EXPECT_EQ(code_of(done), errc::timed_out);
}

TEST_F(LwipPull, F6_An_owner_that_stalls_is_left_and_the_next_try_goes_on) {
  const fast_clock fast(5);
  for (const std::size_t stall : {0u, 1u, 100u, 300u, 20'000u}) {
    *mine = {};
    raw_listener listener;
    const auto middle = between(listener, {{.most = stall, .close = false}});
    const auto done = pull(listener.port(), 1000);
    ASSERT_TRUE(done) << stall << describe(done.error());
    EXPECT_TRUE(same(mine->model, *source));
  }
}

TEST_F(LwipPull, T4_An_owner_that_closes_again_and_again_is_no_reason_to_fetch_bytes_twice) {
  raw_listener listener;
  std::vector<mischief> plan;
  for (std::size_t i = 0; i < 8; ++i) plan.push_back({.most = 3000 + 7 * i});
  const auto middle = between(listener, plan);
  const auto done = pull(listener.port());
  ASSERT_TRUE(completed(done));
  EXPECT_TRUE(same(mine->model, *source));
  EXPECT_LT(answers, done->bytes + 9 * 2048) << "descriptions, prefixes and the rest of a chunk for each connection";
}

TEST_F(LwipPull, An_owner_that_closes_at_once_each_time_is_given_up_by_name) {
  raw_listener listener;
  const auto middle = between(listener, {{.most = 0}, {.most = 0}, {.most = 0}, {.most = 0}, {.most = 0}});
  const auto done = pull(listener.port());
  EXPECT_EQ(code_of(done), errc::connection_lost);
}

TEST_F(LwipPull, A_changed_byte_of_the_image_is_found) {
  raw_listener listener;
  const auto middle = between(listener, {{.flip = 15'001}});
  const auto done = pull(listener.port());
  EXPECT_EQ(code_of(done), errc::digest_mismatch);
}

TEST_F(LwipPull, F16_What_is_no_protocol_is_refused) {
  for (const std::string_view lie : {"HTTP/1.1 400 Bad Request\r\nServer: a\r\nConnection: close\r\n\r\n",
                                     "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n padded to some length"}) {
    const auto done = pull_from_liar([&](raw_peer& p) { p.say(lie); });
    ASSERT_FALSE(done);
    EXPECT_TRUE(done.error().code == errc::bad_frame || done.error().code == errc::too_large) << describe(done.error());
  }
  const auto zeros = pull_from_liar([](raw_peer& p) { p.say(byte_vector(64 * 1024)); });
  EXPECT_EQ(code_of(zeros), errc::bad_frame);
}

TEST_F(LwipPull, Chunks_that_were_not_asked_for_do_not_land) {
  for (const std::uint32_t length : {8u, 2048u, 4096u, 1u << 28}) {
    const auto done = pull_from_liar([&](raw_peer& p) {
      (void)p.hear(64);
      tp::frame m;
      m.kind = tp::frame_kind::chunk;
      m.id = 2, m.ref = ref.id, m.version = ref.version, m.length = length;
      std::array<std::byte, tp::detail::payload_prefix::bytes> head{};
      tp::detail::payload_prefix::write(m, head);
      p.say(head);
      p.say(byte_vector(100'000, std::byte{0xee}));
    });
    EXPECT_FALSE(done);
    EXPECT_EQ(std::memcmp(&mine->model, std::make_unique<device_model>().get(), sizeof(device_model)), 0)
        << "before a description nothing may land";
  }
}

TEST_F(LwipPull, A_stack_without_memory_is_asked_again_over_another_connection) {
  for (const int calls : {0, 1, 2, 5, 20, 60}) {
    *mine = {};
    lwip_shim::fails_after = calls;
    const auto done = pull(owner->port());
    ASSERT_TRUE(done) << calls << describe(done.error());
    EXPECT_TRUE(same(mine->model, *source));
  }
}

TEST_F(LwipPull, A_pull_that_was_stopped_goes_on_from_its_cursor) {
  tp::resume_cursor at;
  cursor = &at;
  {
    raw_listener listener;
    const auto middle = between(listener, {{.most = 16'000, .close = false}});
    joined_thread watch([&] {
      eventually("the device has half of the model", [&] { return answers >= 16'000; });
      be_slow(20ms);
      device_stops = true;
    });
    const auto done = pull(listener.port());
    EXPECT_EQ(code_of(done), errc::cancelled);
  }
  device_stops = false;
  EXPECT_GT(at.offset, 10'000u);
  raw_listener listener;
  const auto middle = between(listener, {});
  const auto done = pull(listener.port());
  ASSERT_TRUE(completed(done));
  EXPECT_TRUE(same(mine->model, *source));
  EXPECT_LT(answers, 18'000u) << "26,344 bytes of data, of which more than 10,000 were there";
}

/// What a pipeline has, and a platform.
struct host_parts : net::parts {
  using platform = tp::host_platform;
};

TEST_F(LwipPull, The_same_loop_serves_a_host_whose_stream_reads_and_waits_in_one_call) {
  const auto reach = [&]() noexcept { return tp::tcp_connect(local(owner->port()), steady_clock::now() + 10s); };
  const auto pause = [](std::chrono::milliseconds time) noexcept {
    (void)::poll(nullptr, 0, static_cast<int>(time.count()));
  };
  tp::land to(tp::raw_tensors<device_model>::destination(mine->model));
  const auto done = tp::device_pull_with<host_parts>(reach, pause, {.ref = ref.id}, to);
  ASSERT_TRUE(confirmed(done));
  EXPECT_TRUE(same(mine->model, *source));
}

tp::result<tp::testing::stream_pair<tp::lwip_stream<device::device_sockets>>> connected() {
  using stream = tp::lwip_stream<device::device_sockets>;
  raw_listener listener;
  lwip::sockaddr_in to{};
  to.sin_len = sizeof to;
  to.sin_family = PF_INET;
  to.sin_port = htons(listener.port());
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto left = stream::connect_to(to, 5s);
  if (!left) return tp::failure(left.error());
  stream right(::accept4(listener.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  return tp::testing::stream_pair<stream>{std::move(*left), std::move(right)};
}

TEST(LwipConformance, Q5_It_keeps_every_requirement_of_a_stream) {
  lwip_shim::most = 1u << 20;
  const auto report = tp::testing::check_byte_stream(connected, {.allocations = &test::allocations_so_far});
  EXPECT_TRUE(report.passed());
  EXPECT_GE(report.count(tp::testing::check_result::passed), 30u);
  if (!report.passed()) report.print(stderr);
}

}  // namespace lwip_pull_test
