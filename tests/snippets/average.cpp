#include "context.hpp"

#include <tensorpull/consumers/average/weighted_average.hpp>

static Mlp global{}, next{};
static void report(std::string_view peer, std::string_view state) {
  std::printf("%.*s %.*s\n", static_cast<int>(peer.size()), peer.data(), static_cast<int>(state.size()), state.data());
}

int main() {
  const double samples = 600;
  // SNIPPET
  must(buffers.has_value() && average.has_value());
  global.b1[0] = 1;
}
