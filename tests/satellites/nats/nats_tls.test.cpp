// NATS over TLS: what a url says about TLS holds, whatever the server says.
#include <tensorpull/satellites/nats/nats_link.hpp>

#include "nats_fixture.hpp"
#include "transports/certificates.hpp"

#include <atomic>
#include <cstdlib>
#include <thread>

namespace nats_tls_test {

using namespace tensorpull;
using namespace std::chrono_literals;

using NatsTls = test::nats_test;

/// A file that is gone with the test.
struct temporary_file {
  explicit temporary_file(const std::string& text) {
    const int file = ::mkstemp(name.data());
    EXPECT_EQ(::write(file, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ::close(file);
  }
  temporary_file(const temporary_file&) = delete;
  ~temporary_file() { ::unlink(name.c_str()); }
  std::string name = "/tmp/tensorpull-nats-tls-XXXXXX";
};

/// A server that does not ask for TLS, or somebody on the way who says so. It keeps what it is told.
class plain_server {
 public:
  plain_server() {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof a;
    EXPECT_EQ(::bind(listener_, reinterpret_cast<const sockaddr*>(&a), size), 0);
    EXPECT_EQ(::listen(listener_, 8), 0);
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&a), &size), 0);
    port_ = ntohs(a.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  plain_server(const plain_server&) = delete;
  ~plain_server() { (void)told(); }

  std::string host() const { return "127.0.0.1:" + std::to_string(port_); }
  /// All that it was told. It ends.
  std::string told() {
    (void)::shutdown(listener_, SHUT_RDWR);  // accept() fails
    if (thread_.joinable()) thread_.join();
    if (listener_ >= 0) ::close(std::exchange(listener_, -1));
    return told_;
  }

 private:
  void run() {
    constexpr std::string_view greeting =
        "INFO {\"server_id\":\"x\",\"version\":\"2.9.0\",\"host\":\"127.0.0.1\",\"port\":4222,\"headers\":true,"
        "\"max_payload\":1048576,\"proto\":1,\"tls_required\":false}\r\n";
    for (int s; (s = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0; ::close(s)) {
      (void)::send(s, greeting.data(), greeting.size(), MSG_NOSIGNAL);
      char bytes[4096];
      for (ssize_t n; (n = ::recv(s, bytes, sizeof bytes, 0)) > 0;) {
        told_.append(bytes, static_cast<std::size_t>(n));
        if (told_.ends_with("PING\r\n")) (void)::send(s, "PONG\r\n", 6, MSG_NOSIGNAL);
      }
    }
  }

  int listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::uint16_t port_ = 0;
  std::string told_;
  std::thread thread_;
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
  const temporary_file ca(known.authority.certificate());
  authorities = ca.name;
  for (const test::identity* who : {&known.server, &elsewhere}) {
    const temporary_file certificate(who->certificate()), key(who->key());
    const test::nats_process server("tls { cert_file: \"" + certificate.name + "\", key_file: \"" + key.name + "\" }");
    const std::string url = "tls://127.0.0.1:" + std::to_string(server.port());
    const auto link = nats_link::connect({.url = url, .timeout = 5s, .configure = trust});
    EXPECT_EQ(link.has_value(), who == &known.server) << (link ? "" : to_string(link.error().code));
    EXPECT_FALSE(nats_link::connect({.url = url, .timeout = 5s})) << "nobody has said whom to trust";
  }
}

}  // namespace nats_tls_test
