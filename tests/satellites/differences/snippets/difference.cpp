// NEEDS tensorpull::differences
#include "context.hpp"

#include <tensorpull/satellites/differences/deflate/deflate.hpp>
#include <tensorpull/satellites/differences/download_changes.hpp>

#include <cstring>

using model = Mlp;
using net = over_tcp;
static Mlp last_round{}, now{}, mine{};

int main() {
  for (float& w : now.w1[3]) w = 1.5f;
  serving_owner<net> server;
  auto* const owner = &server.owner();
  const std::string address = server.address();
  // SNIPPET
  must(difference.has_value() && difference->bytes().size() < sizeof(Mlp) / 20);
  must(done.has_value() && done->outcome == outcome::completed && std::memcmp(&mine, &now, sizeof now) == 0);
}
