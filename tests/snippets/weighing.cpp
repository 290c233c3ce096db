#include "context.hpp"

#include <tensorpull/consumers/average/weighing.hpp>

#include <utility>

static Mlp next{}, global{}, theirs{}, others{};

int main() {
  const double samples = 20;
  theirs.b2[0] = 1;
  others.b2[0] = -1000;
  const std::pair<const char*, Mlp*> landed[]{{"client-7", &theirs}, {"client-8", &others}};
  // SNIPPET
  must(done.has_value() && next.b2[0] == 0 && all->updates().size() == 2);
}
