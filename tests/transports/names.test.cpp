// Names of hosts: those that are known later than a program starts, and those that are none.
#include "network.hpp"
#include "support/clocks.hpp"
#include "support/few_descriptors.hpp"
#include "udp_network.hpp"

#include <dlfcn.h>
#include <netdb.h>

#include <atomic>

namespace names_test {

std::atomic<int> asked{0}, unknown_for{0};
std::string both[2];  ///< the addresses of "owner.both"

extern "C" int getaddrinfo(const char* host, const char* port, const addrinfo* hints, addrinfo** found) {
  static const auto real = reinterpret_cast<decltype(&::getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  if (host != nullptr && std::string_view(host) == "owner.later") {
    if (asked++ < unknown_for) return EAI_AGAIN;
    host = "127.0.0.1";
  }
  if (host == nullptr || std::string_view(host) != "owner.both") return real(host, port, hints, found);
  const int failed = real(both[0].c_str(), port, hints, found);
  return failed != 0 ? failed : real(both[1].c_str(), port, hints, &(*found)->ai_next);
}

using namespace test;
using net = raw_net<tiny, tp::tcp>;
using datagram_net = tp::pipeline<tp::raw_tensors<tiny>, fit, tp::udp>;
constexpr tp::retry_policy quick{.retries = 3, .first_delay = 1ms, .longest_delay = 1ms};

TEST(Names, A_host_whose_name_is_known_later_is_waited_for_as_a_program_that_starts_later) {
  const auto source = random_model<tiny>(1), mine = blank<tiny>(), other = blank<tiny>();
  auto owner = net::downloader::open({.listen = any_port});
  auto datagrams = datagram_net::downloader::open({.listen = any_port});
  ASSERT_TRUE(owner && datagrams);
  const auto ref = *owner->add_tensors(*source), beside = *datagrams->add_tensors(*source);
  serving one(*owner), two(*datagrams);
  asked = 0, unknown_for = 2;
  EXPECT_TRUE(
      succeeded(net::download_tensors("owner.later:" + std::to_string(owner->port()), ref, *mine, {.retry = quick})));
  EXPECT_EQ(asked, 3);
  asked = 0;
  EXPECT_TRUE(net::session::connect("owner.later:" + std::to_string(owner->port()), {.retry = quick}));
  EXPECT_EQ(asked, 3);
  asked = 0;
  EXPECT_TRUE(succeeded(datagram_net::download_tensors("owner.later:" + std::to_string(datagrams->port()), beside,
                                                       *other, {.retry = quick})));
  EXPECT_EQ(asked, 3);
  EXPECT_TRUE(same(*mine, *source) && same(*other, *source));
}

TEST(Names, A_hosts_first_address_that_refuses_once_is_kept_if_no_other_has_a_route_or_a_descriptor) {
  for (const bool short_of_descriptors : {false, true}) {
    const own_udp_port own;
    const auto colon = own.address().find(':');
    both[0] = own.address().substr(0, colon), both[1] = "255.255.255.255";  // which has no route
    auto link = tp::udp_link::connect("owner.both" + own.address().substr(colon));
    ASSERT_TRUE(link);
    const std::array<std::byte, 8> word{};
    const std::array<std::span<const std::byte>, 1> words{word};
    std::array<std::byte, 64> memory;
    tp::udp_address from;
    {
      const few_descriptors limit(short_of_descriptors ? 0 : 8);
      (void)link->send(words, {});
      ASSERT_TRUE(link->wait(true, false, 10s).read) << "it is refused";
      EXPECT_EQ(link->receive(memory, from).status, tp::io_status::would_block);
    }
    auto back = tp::udp_link::open(own.address());
    ASSERT_TRUE(back);
    (void)link->send(words, {});
    ASSERT_TRUE(back->wait(true, false, 10s).read);
    EXPECT_EQ(back->receive(memory, from).bytes, word.size());
  }
}

TEST(Names, Silent_addresses_of_a_host_have_turns_in_rounds) {
  const own_udp_port own;
  const auto colon = own.address().find(':');
  both[0] = own.address().substr(0, colon), both[1] = "127.0.0.1";  // where the port is held, and nobody reads
  auto first = tp::udp_link::open(own.address());
  auto link = tp::udp_link::connect("owner.both" + own.address().substr(colon));
  ASSERT_TRUE(first && link);
  pass_time(10s);  // a turn begins with a datagram
  for (const unsigned n : {1u, 2u, 3u}) {
    const std::array<std::byte, 1> word{std::byte(n)};
    const std::array<std::span<const std::byte>, 1> words{word};
    (void)link->send(words, {});
    pass_time(3s);
  }
  std::array<std::byte, 64> memory;
  tp::udp_address from;
  for (const unsigned n : {1u, 3u}) {
    ASSERT_TRUE(first->wait(true, false, 10s).read);
    ASSERT_EQ(first->receive(memory, from).bytes, 1u);
    EXPECT_EQ(memory[0], std::byte(n));
  }
}
TEST(Names, A_hosts_first_address_that_is_silent_leaves_the_turn_to_the_next) {
  const own_udp_port own;
  const auto colon = own.address().find(':');
  both[0] = "127.0.0.1", both[1] = own.address().substr(0, colon);  // at the first the port is held, and nobody reads
  const auto source = random_model<tiny>(1), mine = blank<tiny>();
  auto owner = datagram_net::downloader::open({.listen = own.address()});
  ASSERT_TRUE(owner);
  const auto ref = *owner->add_tensors(*source);
  serving server(*owner);
  const fast_clock fast(20);
  EXPECT_TRUE(succeeded(datagram_net::download_tensors("owner.both" + own.address().substr(colon), ref, *mine,
                                                       {.per_request_timeout = 60s, .retry = {.retries = 0}})));
  EXPECT_TRUE(same(*mine, *source));
}

TEST(Names, A_host_that_stays_unknown_is_an_error_of_its_own_that_names_it) {
  const auto mine = blank<tiny>();
  unknown_for = 1000;
  for (const bool datagrams : {false, true}) {
    asked = 0;
    const auto done = datagrams
                          ? datagram_net::download_tensors("owner.later:1", tp::ref_id{1, 2}, *mine, {.retry = quick})
                          : net::download_tensors("owner.later:1", tp::ref_id{1, 2}, *mine, {.retry = quick});
    EXPECT_EQ(code_of(done), errc::unknown_host);
    EXPECT_EQ(done.error().name.view(), "owner.later:1");
    EXPECT_EQ(asked, 4);
  }
}

TEST(Names, Q2_a_resolver_without_descriptors_is_no_host_that_is_unknown) {
  const few_descriptors limit(0);
  for (const auto& error : {net::session::connect("localhost:0").error(), tp::udp_link::connect("localhost:0").error(),
                            tp::tcp_listener::open("localhost:0").error()}) {
    EXPECT_EQ(error, errc::connection_failed);
    EXPECT_EQ(error.system, EMFILE);
    EXPECT_TRUE(error.name.view().starts_with("localhost:"));
  }
}

TEST(Names, A_host_that_no_resolver_can_know_is_final) {
  const auto mine = blank<tiny>();
  for (const char* const text : {"no such host:1", "a..b:1", ".:1", "256.1.1.1:1", "1.2.3.4.5:1", "[::g]:1", "a/b:1",
                                 "\r\nx:1", "user@host:1"}) {
    EXPECT_EQ(code_of(net::download_tensors(text, tp::ref_id{1, 2}, *mine, {.retry = {.first_delay = 1h}})),
              errc::bad_address)
        << text;
    EXPECT_EQ(code_of(datagram_net::download_tensors(text, tp::ref_id{1, 2}, *mine, {.retry = {.first_delay = 1h}})),
              errc::bad_address)
        << text;
  }
  EXPECT_EQ(code_of(net::download_tensors(std::string(64, 'a') + ":1", tp::ref_id{1, 2}, *mine)), errc::bad_address);
}

}  // namespace names_test
