// NATS over TLS: what a url says about TLS holds, whatever the server says.
#include <tensorpull/satellites/nats/nats_link.hpp>

#include "nats_fixture.hpp"
#include "transports/certificates.hpp"
#include "transports/network.hpp"

#include <fstream>
#include <stop_token>

namespace nats_tls_test {

using namespace tensorpull;
using namespace std::chrono_literals;

using NatsTls = test::nats_test;

/// A server that does not ask for TLS, or somebody on the way who says so. It keeps what it is told.
class plain_server {
 public:
  std::string host() const { return test::local(listener_.port()); }
  /// All that it was told. It ends.
  std::string told() {
    thread_.request_stop();
    thread_.join();
    return told_;
  }

 private:
  void run(const std::stop_token& stop) {
    constexpr std::string_view greeting =
        "INFO {\"server_id\":\"x\",\"version\":\"2.9.0\",\"host\":\"127.0.0.1\",\"port\":4222,\"headers\":true,"
        "\"max_payload\":1048576,\"proto\":1,\"tls_required\":false}\r\n";
    while (!stop.stop_requested()) {
      auto peer = listener_.next(20ms);
      for (bool there = peer && peer->say(greeting); there && !peer->ended() && !stop.stop_requested();) {
        for (const std::byte b : peer->hear(4096, 0s)) told_ += static_cast<char>(b);
        if (told_.ends_with("PING\r\n")) there = peer->say("PONG\r\n");
        peer->stream().wait(true, false, 20ms);
      }
    }
  }

  test::raw_listener listener_;
  std::string told_;
  test::joined_thread thread_{[this](const std::stop_token& stop) { run(stop); }};
};

TEST(NatsUrl, One_that_says_tls_tells_nothing_to_a_server_without_it) {
  for (const std::string scheme : {"tls://", "TLS://"}) {
    plain_server server;
    const std::string url = scheme + "alice:secret@" + server.host();
    EXPECT_FALSE(nats_link::connect({.url = url, .timeout = 500ms}));
    EXPECT_EQ(server.told(), "");
  }
}

TEST(NatsUrl, A_list_in_which_only_some_say_tls_is_no_address) {
  plain_server server;
  for (const std::string list : {"tls://127.0.0.1:1,nats://bob:secret@", "nats://bob:secret@", "bob:secret@"}) {
    std::string url = list + server.host();
    if (!list.starts_with("tls")) url += ",tls://127.0.0.1:1";
    const auto link = nats_link::connect({.url = url, .timeout = 500ms});
    ASSERT_FALSE(link);
    EXPECT_EQ(link.error().code, errc::bad_address);
  }
  EXPECT_EQ(server.told(), "");
}

/// What the program trusts.
std::string authorities;
natsStatus trust(natsOptions* options) { return natsOptions_LoadCATrustedCertificates(options, authorities.c_str()); }

TEST_F(NatsTls, A_server_is_reached_if_its_certificate_has_the_name_of_the_url) {
  const test::pki known;
  const test::identity elsewhere({.common_name = "elsewhere", .alternatives = "DNS:elsewhere.example.org"},
                                 &known.authority);
  const test::own_folder folder;
  const auto put = [&](const char* name, const std::string& text) {
    std::ofstream(folder / name) << text;
    return folder / name;
  };
  authorities = put("authorities", known.authority.certificate());
  for (const test::identity* who : {&known.server, &elsewhere}) {
    const std::string certificate = put("certificate", who->certificate()), key = put("key", who->key());
    const test::nats_process server("tls { cert_file: \"" + certificate + "\", key_file: \"" + key + "\" }");
    const std::string url = "tls://127.0.0.1:" + std::to_string(server.port());
    const auto link = nats_link::connect({.url = url, .timeout = 5s, .configure = trust});
    EXPECT_EQ(link.has_value(), who == &known.server) << (link ? "" : to_string(link.error().code));
    EXPECT_FALSE(nats_link::connect({.url = url, .timeout = 5s})) << "nobody has said whom to trust";
  }
}

}  // namespace nats_tls_test
