#include "context.hpp"

#include <tensorpull/satellites/differences/narrowed.hpp>

#include <cstring>

using model = Mlp;
using net = over_tcp;
static Mlp now{}, base{}, mine{};

int main() {
  for (int i = 0; i < 784; ++i) now.w1[3][i] = 1.5f + static_cast<float>(i % 7) * 0.01f;
  serving_owner<net> server;
  auto* const owner = &server.owner();
  const std::string address = server.address();
  // SNIPPET
  must(done.has_value() && done->outcome == outcome::completed && std::memcmp(&mine, &sent, sizeof sent) == 0);
  must(mine.w1[3][7] > 1.4f && base.w1[3][7] == 0);
}
