// A model that is gone before the message is sent.
// EXPECT: deleted
// WITHIN_LINES: 5
// MAX_ERRORS: 3
// MAX_LINES: 24
#include <tensorpull/tensorpull.hpp>

#include <tensorpull/messages/tensors_of.hpp>

struct model {
  float w[4];
};
BOOST_HANA_ADAPT_STRUCT(model, w);

int main() {
  const tensorpull::tensors_of<model> set(model{});
  return set.received() ? 0 : 1;
}
