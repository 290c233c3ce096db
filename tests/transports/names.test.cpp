// Names of hosts: those that are known later than a program starts, and those that are none.
#include "network.hpp"
#include "udp_network.hpp"

#include <dlfcn.h>
#include <netdb.h>

#include <atomic>

namespace names_test {

std::atomic<int> asked{0}, unknown_for{0};

extern "C" int getaddrinfo(const char* host, const char* port, const addrinfo* hints, addrinfo** found) {
  static const auto real = reinterpret_cast<decltype(&::getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  if (host != nullptr && std::string_view(host) == "owner.later") {
    if (asked++ < unknown_for) return EAI_AGAIN;
    host = "127.0.0.1";
  }
  return real(host, port, hints, found);
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
