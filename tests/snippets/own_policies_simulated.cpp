// NEEDS tensorpull::testing
#include "context.hpp"

#include <cassert>

// SNIPPET 1

using my_chunking = fixed_bytes<256>;
using my_integrity = image_digest;
using my_consumer = land;

int main() {
  // SNIPPET 2
  must(sum.passed());
}
