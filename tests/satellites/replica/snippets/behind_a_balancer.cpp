// SNIPPET 1
#include "context.hpp"

// SNIPPET 2

static Mlp trained{}, also_trained{}, mine{};

int main() {
  trained.b2[3] = also_trained.b2[3] = 3;

  // SNIPPET 3

  const std::string where = "127.0.0.1:" + std::to_string(coordinator->port());

  // SNIPPET 4

  // a balancer with one replica is that replica
  const std::string balancer = "127.0.0.1:" + std::to_string(replica->port());
  must(ref.has_value() && same.has_value());
  std::jthread a([&](std::stop_token stop) { coordinator->run(stop); }),
      b([&](std::stop_token stop) { replica->run(stop); });

  // SNIPPET 5

  must(done && done->outcome == outcome::completed && mine.b2[3] == 3);
}
