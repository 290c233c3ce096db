#include "context.hpp"

#include <tensorpull/satellites/differences/download_changes.hpp>

#include <cstring>

using model = Mlp;
using net = over_tcp;
static Mlp now{}, mine{};

int main() {
  now.b2[3] = 1.5f;
  serving_owner<net> server;
  auto* const owner = &server.owner();
  const std::string address = server.address();
  // SNIPPET
  must(done.has_value() && done->outcome == outcome::completed && std::memcmp(&mine, &now, sizeof now) == 0);
  must(kept == sizeof now - sizeof now.b2);
}
