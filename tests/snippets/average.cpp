#include "context.hpp"

#include <tensorpull/consumers/average/weighted_average.hpp>

static Mlp global{}, next{};

int main() {
  const double samples = 600;
  // SNIPPET
  must(buffers.has_value() && average.has_value());
  global.b1[0] = 1;
}
