// NEEDS tensorpull::tls GTest::gtest
// SNIPPET 1
#include "../transports/certificates.hpp"
#include "context.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>

// SNIPPET 2

static Mlp trained{}, mine{};

int main() {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("tensorpull-certificates-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  std::filesystem::current_path(folder);
  const test::pki p;
  const test::identity site({.common_name = "site-3", .alternatives = {}}, &p.authority);
  const auto write = [](const char* name, const std::string& text) { std::ofstream(name) << text; };
  write("ca.pem", p.authority.certificate());
  write("server.pem", p.server.certificate());
  write("server.key", p.server.key());
  write("site-3.pem", site.certificate());
  write("site-3.key", site.key());

  // SNIPPET 3

  must(door && owner);
  trained.b2[3] = 3;
  const auto published = owner->add_tensors(trained);
  must(published.has_value());
  const reference ref = *published;
  std::jthread serving([&](std::stop_token stop) { owner->run(stop); });
  const std::string address = "127.0.0.1:" + std::to_string(owner->port());

  // SNIPPET 4

  must(done && done->outcome == outcome::completed && mine.b2[3] == 3);
  const auto another = net::download_tensors(tls_address{address, *own}, ref, mine,
                                             {.recipient = recipient_named("site-4")});
  must(!another && another.error() == errc::unknown_reference);
  std::filesystem::current_path("/");
  std::filesystem::remove_all(folder);
}
