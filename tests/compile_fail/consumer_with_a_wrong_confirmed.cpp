// A consumer whose `confirmed` takes an argument.
// EXPECT: tensorpull: a consumer that is told of the owner's answer is told without arguments (requirement 11)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct sink : detail::null_consumer {
  void confirmed(int) noexcept {}
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, tcp>;
bool pull(const reference& ref, sink& to) { return net::pull("there", ref, to).has_value(); }
