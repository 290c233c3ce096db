// A relay whose line to the owner carries nothing any more.
#include "transports/gone_line.hpp"

#include <tensorpull/satellites/relay/relay.hpp>

#include <vector>

namespace relay_silent_line_test {

using namespace test;
using net = tp::pipeline<tp::raw_tensors<tiny>, tp::fixed_bytes<1_KiB>, tp::tcp>;

// Before this the recipient was held until the relay's own time was over.
TEST(RelaySilentLine, A_relay_notices_that_the_line_to_the_owner_is_gone) {
  raw_listener owner;
  auto up = tp::tcp_connect(local(owner.port()), steady_clock::now() + 10s);
  ASSERT_TRUE(up);
  const raw_peer silent = owner.accept();
  tp::relay_link<net::parts, tp::posix_stream> upstream(std::move(*up));
  auto [recipient, served] = connected();
  std::vector<std::byte> chunk(1024);
  const tp::reference ref{{5, 6}, 0, 0};
  const int fd = upstream.stream().native_handle();
  const auto relay = [&, &to = served](std::chrono::milliseconds time, std::chrono::milliseconds more) {
    const silence here(fd, more);
    return tp::relay<net::parts>(upstream, to, ref, chunk, {.idle_timeout = time, .accept_timeout = time});
  };
  const auto one = relay(tp::detail::longest_silence + 4s, 3s);
  ASSERT_FALSE(one);
  EXPECT_EQ(one.error(), tp::errc::timed_out) << "the owner is there";
  EXPECT_FALSE(asks(fd)) << "nothing is due after the relay";
  pass_time(tp::detail::short_pause + 1s);
  const gone_line gone(owner.port());
  const auto two = relay(60s, 0s);
  ASSERT_FALSE(two);
  EXPECT_EQ(two.error(), tp::errc::connection_lost);
}

static_assert(tp::transfer_role<tp::relay_machine<tp::word_framing>>);

}  // namespace relay_silent_line_test
