// NEEDS tensorpull::nats GTest::gtest
// SNIPPET 1
#include "context.hpp"
#include "satellites/nats/nats_fixture.hpp"

// SNIPPET 2

static Mlp trained{}, also_trained{}, mine{};

int main() {
  if (test::nats_program().empty()) return 0;  // as the tests of the transport, which say so
  test::nats_process server;
  const std::string url = server.url();
  trained.b2[3] = also_trained.b2[3] = 3;

  // SNIPPET 3

  must(ref.has_value() && same.has_value());
  std::jthread a([&](std::stop_token stop) { owner->run(stop); }), b([&](std::stop_token stop) { replica->run(stop); });

  // SNIPPET 4

  must(done && done->outcome == outcome::completed && mine.b2[3] == 3);
}
