// NEEDS tensorpull::relay
// SNIPPET 1
#include "context.hpp"

#include <chrono>
#include <vector>

using namespace std::chrono_literals;

// SNIPPET 2

static Mlp trained{}, mine{};

int main() {
  trained.b2[3] = 3;
  serving_owner<net> far;
  const std::string owner_address = far.address();
  const auto published = far.owner().add_tensors(trained, {.recipients = 1});
  must(published);
  const reference ref = *published;

  // SNIPPET 3

  must(door);
  const std::string relay_address = "127.0.0.1:" + std::to_string(door->port());
  std::jthread middle([&] {
    // SNIPPET 4
    must(passed && passed->completed == 1);
  });

  // SNIPPET 5

  must(done && done->outcome == outcome::completed && done->confirmed && mine.b2[3] == 3);
}
