// NEEDS tensorpull::parallel
// SNIPPET 1
#include "context.hpp"

#include <array>

using net = over_tcp;

static Mlp trained{}, mine{};

int main() {
  trained.b2[3] = 3;
  serving_owner<net> one, two;
  const std::string first = one.address(), second = two.address();
  auto ref = one.owner().add_tensors(trained);
  must(ref && two.owner().add_tensors(trained, {.id = ref->id}));

  // SNIPPET 2

  // SNIPPET 3

  // SNIPPET 4

  // SNIPPET 5

  for (const auto& each : {done, same, again}) must(each && each->outcome == outcome::completed);
  must(mine.b2[3] == 3);
}
