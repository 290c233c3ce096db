// NEEDS tensorpull::asio
// SNIPPET 1
#include "context.hpp"

#include <thread>

using net = over_tcp;

static Mlp trained{}, mine{};

int main() {
  trained.b2[3] = 3;

  // SNIPPET 2

  must(owner);
  const std::string address = "127.0.0.1:" + std::to_string(owner->port());

  // SNIPPET 3

  must(ref);
  std::jthread recipient([&] { must(net::download_tensors(address, *ref, mine)); });

  // SNIPPET 4

  recipient.join();
  must(mine.b2[3] == 3);
}
