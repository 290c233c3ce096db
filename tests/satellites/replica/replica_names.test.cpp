// A replica whose coordinator's name stands for several addresses.
#include "support/clocks.hpp"
#include "support/own_port.hpp"
#include "transports/network.hpp"

#include <tensorpull/core/describe.hpp>
#include <tensorpull/satellites/replica/replica_owner.hpp>

#include <dlfcn.h>
#include <netdb.h>

#include <atomic>

namespace replica_names_test {

std::string both[2];  ///< the addresses of "coordinator.both"
std::atomic<int> asked{0};  ///< how often

extern "C" int getaddrinfo(const char* host, const char* port, const addrinfo* hints, addrinfo** found) {
  static const auto real = reinterpret_cast<decltype(&::getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  if (host == nullptr || std::string_view(host) != "coordinator.both") return real(host, port, hints, found);
  ++asked;
  const int failed = real(both[0].c_str(), port, hints, found);
  return failed != 0 ? failed : real(both[1].c_str(), port, hints, &(*found)->ai_next);
}

using namespace test;
using net = raw_net<mlp, tp::tcp>;
constexpr tp::ref_id shared{61, 62};

/// A listener at this port of an address of this process's own, with a queue that is full: who connects hears nothing.
class silent_address {
 public:
  explicit silent_address(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in a{};
    a.sin_family = AF_INET, a.sin_port = htons(port);
    a.sin_addr.s_addr = htonl((127u << 24) + (1u << 16) + static_cast<std::uint32_t>(::getpid()));
    EXPECT_EQ(::bind(fd_.native_handle(), reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
    EXPECT_EQ(::listen(fd_.native_handle(), 0), 0);
    char text[INET_ADDRSTRLEN];
    host_ = ::inet_ntop(AF_INET, &a.sin_addr, text, sizeof text);
    for (bool full = false; !full && queued_.size() < 16;) {
      auto s = tp::tcp_connect(host_ + ":" + std::to_string(port), steady_clock::now() + 200ms);
      if (s) queued_.push_back(std::move(*s));
      else full = s.error() == errc::timed_out;
    }
    EXPECT_LT(queued_.size(), 16u) << "this system has no queue that can be full";
  }
  const std::string& host() const { return host_; }

 private:
  tp::posix_stream fd_;
  std::string host_;
  std::vector<tp::posix_stream> queued_;
};

TEST(ReplicaNames, A_coordinators_first_address_that_is_silent_leaves_the_turn_to_the_next) {
  const auto model = random_model<mlp>(1), mine = blank<mlp>();
  auto coordinator = net::downloader::open({.listen = any_port});
  ASSERT_TRUE(coordinator);
  const auto ref = *coordinator->add_tensors(*model, {.recipients = 1, .id = shared});
  const silent_address silent(coordinator->port());
  both[0] = silent.host(), both[1] = "127.0.0.1";
  auto replica = tp::replica_of<net>::open(any_port, "coordinator.both:" + std::to_string(coordinator->port()));
  ASSERT_TRUE(replica && replica->add_tensors(*model, {.id = shared}));
  const serving one(*coordinator), other(*replica);
  const fast_clock fast(10);
  EXPECT_TRUE(succeeded(net::download_tensors(local(replica->port()), ref, *mine,
                                              {.per_request_timeout = 100s, .retry = {.retries = 0}})));
  EXPECT_TRUE(same(*mine, *model));
}

TEST(ReplicaNames, A_coordinator_that_comes_back_at_the_first_address_is_found_although_the_second_is_silent) {
  const auto model = random_model<mlp>(2), mine = blank<mlp>();
  const own_port port;
  const silent_address silent(port);
  both[0] = "127.0.0.1", both[1] = silent.host();
  auto replica = tp::replica_of<net>::open(any_port, "coordinator.both:" + std::to_string(port),
                                           {.budgets = {.accept = 1s}, .gone = 600s});
  const auto ref = *replica->add_tensors(*model, {.id = shared});
  const serving other(*replica);
  asked = 0;
  EXPECT_TRUE(eventually("it looks for its coordinator", [] { return asked > 0; }));
  auto coordinator = net::downloader::open({.listen = local(port)});
  ASSERT_TRUE(coordinator && coordinator->add_tensors(*model, {.recipients = 1, .id = shared}));
  const serving one(*coordinator);
  const fast_clock fast(10);
  EXPECT_TRUE(succeeded(net::download_tensors(local(replica->port()), ref, *mine,
                                              {.per_request_timeout = 100s, .retry = {.retries = 0}})));
  EXPECT_TRUE(same(*mine, *model));
}

}  // namespace replica_names_test
