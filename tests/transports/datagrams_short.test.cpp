// Links with the shortest datagrams, 128 bytes: a description does not fit one of them, and travels in pieces.
#include "support/clocks.hpp"
#include "transports/udp_network.hpp"

#include <tensorpull/transports/peers/owner.hpp>
#include <tensorpull/transports/session/datagram_session.hpp>

#include <gtest/gtest.h>

#include <sys/socket.h>

#include <atomic>

namespace datagrams_short_test {

using namespace test;

/// A pair of sockets stands in for the air between two devices.
class radio {
 public:
  using address = tp::only_peer;
  static constexpr std::size_t max_datagram_bytes = 128;
  static constexpr bool checked = true;
  static constexpr bool addresses_are_proved = true;

  explicit radio(int modem) noexcept : modem_(modem) {}
  std::size_t datagram_bytes() const noexcept { return max_datagram_bytes; }
  tp::io_result receive(byte_span memory, address&) noexcept {
    const ssize_t n = ::recv(modem_.native_handle(), memory.data(), memory.size(), MSG_DONTWAIT | MSG_TRUNC);
    if (n > 0 && static_cast<std::size_t>(n) <= memory.size())
      return {tp::io_status::ok, 0, static_cast<std::size_t>(n)};
    return {tp::io_status::would_block, 0, 0};
  }
  tp::io_result send(std::span<const const_byte_span> datagram, const address&) noexcept {
    std::size_t n = 0;
    for (const auto& s : datagram) n += s.size();
    if (n > max_datagram_bytes) too_long = true;
    return modem_.write_some(datagram);
  }
  tp::io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    return modem_.wait(read, write, timeout);
  }

  static inline std::atomic<bool> too_long = false;

 private:
  tp::posix_stream modem_;
};

int air[2];
struct by_radio : tp::datagram_transport<by_radio, tp::testing::faulty_datagrams<radio>> {
  static inline tp::testing::datagram_faults faults{};
  static tp::result<link> connect(std::string_view, std::chrono::milliseconds, const tp::stop_token&) noexcept {
    return around(1);
  }
  static tp::result<link> open(std::string_view) noexcept { return around(0); }

 private:
  static tp::result<link> around(std::size_t end) noexcept {
    auto own = faults;
    own.seed += end;
    return link(radio(::dup(air[end])), own);
  }
};
static_assert(by_radio::max_payload_bytes == 48);

template <class Net>
void expect_a_model_arrives(bool without_loss = true) {
  const auto source = random_model<mlp>(1);
  auto mine = blank<mlp>();
  auto owner = Net::downloader::open();
  ASSERT_TRUE(owner);
  const auto ref = owner->add_tensors(*source, {.recipients = 1});
  ASSERT_TRUE(ref);
  serving run(*owner);
  const fast_clock fast(10);
  const auto done = Net::download_tensors(local(owner->port()), *ref, *mine);
  ASSERT_TRUE(completed(done));
  EXPECT_TRUE(done->confirmed || !without_loss);
  EXPECT_TRUE(same(*source, *mine));
}

/// One of the tensors of `source`.
template <class Net>
void expect_the_mask_arrives(const std::string& address, const tp::reference& ref, const mlp& source,
                             tp::pull_options options) {
  const auto mine = blank<mlp>();
  std::array<std::uint64_t, 1> shape{1000};
  const std::array views{tp::mutable_tensor_view{
      .name = "mask", .type = dtype::u8, .shape = shape, .data = reinterpret_cast<std::byte*>(mine->mask)}};
  auto image = tp::dynamic_image::make(std::span<const tp::mutable_tensor_view>(views));
  tp::land to(image->destination());
  const std::string_view names[] = {"mask"};
  options.tensors = names;
  const auto done = Net::pull(address, ref, to, options);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(std::memcmp(mine->mask, source.mask, sizeof mine->mask), 0);
}

struct RadioOf128 : ::testing::Test {
  void SetUp() override {
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM, 0, air), 0);
    radio::too_long = false;
  }
  void TearDown() override {
    ::close(air[0]), ::close(air[1]);
    EXPECT_FALSE(radio::too_long);
  }
};

using radio_net = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<48>, by_radio>;

TEST_F(RadioOf128, A_model_arrives_in_chunks_of_48) {
  by_radio::faults = {};
  expect_a_model_arrives<radio_net>();
}

TEST_F(RadioOf128, And_though_datagrams_are_lost_doubled_and_overtaken) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    by_radio::faults = {.lost = 100, .doubled = 50, .overtaken = 50, .seed = seed};
    expect_a_model_arrives<radio_net>(false);
  }
}

TEST_F(RadioOf128, Some_tensors_arrive_though_datagrams_are_lost) {
  by_radio::faults = {.lost = 50, .seed = 9};
  owner_at_work<radio_net> o;
  expect_the_mask_arrives<radio_net>("", o.ref, *o.source, {});
}

TEST_F(RadioOf128, Sessions_talk_and_pull) {
  const auto never = [](const auto&) { return false; };
  // Whatever is lost may be asked for again, so each end serves until the other one has all: for a time would not do,
  // since nobody is told that an end has gone, and the other would wait for as long as its calls may take.
  std::stop_source near_has_all, far_has_all;
  by_radio::faults = {.lost = 20, .seed = 11};
  const auto source = random_model<mlp>(6);
  joined_thread other([&] {
    auto far = radio_net::session::over(*by_radio::open(""));
    const auto ref = *far->add_tensors(*source, {.recipients = 1});
    const std::array references{ref};
    EXPECT_TRUE(far->send(6, references, std::as_bytes(std::span(source->mask)), 60s));
    EXPECT_TRUE(far->serve(tp::until_settled(ref), 60s));
    far_has_all.request_stop();
    EXPECT_EQ(code_of(far->serve(never, 60s, near_has_all.get_token())), errc::cancelled);
  });
  auto near = radio_net::session::connect("");
  const auto task = near->receive(60s);
  const auto mine = blank<mlp>();
  if (task) {
    const tp::reference wanted = task->references[0];
    EXPECT_EQ(task->body.size(), sizeof source->mask);
    const auto done = near->download_tensors(wanted, *mine, {.per_request_timeout = 60s, .retry = {.retries = 0}});
    EXPECT_TRUE(done && done->outcome == tp::outcome::completed);
    EXPECT_TRUE(done && done->confirmed);
  }
  near_has_all.request_stop();
  EXPECT_EQ(code_of(near->serve(never, 60s, far_has_all.get_token())), errc::cancelled);
  other.join();
  EXPECT_TRUE(task);
  EXPECT_TRUE(same(*mine, *source));
}

/// UDP: the cookie takes 8 bytes of each datagram.
struct short_udp : tp::datagram_transport<short_udp, tp::basic_udp_link<128>> {
  static constexpr std::string_view any_address = any_port;
  static tp::result<link> connect(std::string_view address, std::chrono::milliseconds, const tp::stop_token&) noexcept {
    return link::connect(address);
  }
  static tp::result<link> open(std::string_view address) noexcept { return link::open(address); }
};

TEST(UdpOf128, A_model_arrives) {
  using net = tp::pipeline<tp::raw_tensors<mlp>, tp::fit_datagram, short_udp>;
  static_assert(std::is_same_v<net::chunking, tp::fixed_bytes<40>>);
  expect_a_model_arrives<net>();
}

TEST(UdpOf128, Descriptions_that_nobody_takes_are_in_nobodys_way) {
  using net = tp::pipeline<tp::raw_tensors<mlp>, tp::fit_datagram, short_udp>;
  const auto source = random_model<mlp>(1);
  auto mine = blank<mlp>();
  auto owner = net::downloader::open({.long_buffers = 2});
  ASSERT_TRUE(owner);
  const auto ref = owner->add_tensors(*source, {.recipients = 1});
  serving run(*owner);
  stranger one(owner->port()), two(owner->port());
  for (auto* s : {&one, &two}) {
    const auto word = s->word();
    s->say(word, describe_of(*ref).bytes());
    EXPECT_GT(s->hear().size(), tp::cookie_bytes);
  }
  const auto done = net::download_tensors(local(owner->port()), *ref, *mine,
                                          {.per_request_timeout = 3s, .retry = {.retries = 0}});
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*source, *mine));
}

TEST(UdpOf128, Peers_that_keep_buffers_lose_them_to_others) {
  using net = tp::pipeline<tp::raw_tensors<mlp>, tp::fit_datagram, short_udp>;
  owner_at_work<net> o(net::downloader::open({.budgets = {.idle_if_full = 300ms}, .long_buffers = 2}));
  stranger one(o.owner->port()), two(o.owner->port());
  const auto of_one = one.word(), of_two = two.word();
  one.say(of_one, describe_of(o.ref).bytes());
  EXPECT_GT(one.hear().size(), tp::cookie_bytes);
  std::array<std::byte, 112> begun{};  // the first piece of a request that never goes on
  tp::detail::piece_prefix::write({tp::frame_kind::piece, 5, 0, 0, 300, 32},
                                  std::span(begun).first<tp::detail::piece_prefix::bytes>());
  one.say(of_one, begun);
  tp::frame page;  // an answer that nobody takes
  page.kind = tp::frame_kind::schema;
  page.id = 2;
  page.ref = o.ref.id;
  two.say(of_two, encode(page).bytes());
  EXPECT_GT(two.hear().size(), tp::cookie_bytes);

  expect_the_mask_arrives<net>(local(o.owner->port()), o.ref, *o.source,
                               {.per_request_timeout = 5s, .retry = {.retries = 0}});
}

}  // namespace datagrams_short_test
