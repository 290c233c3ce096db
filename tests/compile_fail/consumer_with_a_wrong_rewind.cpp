// A consumer whose `rewind` takes other arguments.
// EXPECT: tensorpull: a consumer that can take a chunk twice is told where it began (requirement 9)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct sink : detail::null_consumer {
  bool rewind(std::uint32_t, int) noexcept { return true; }
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, tcp>;
bool pull(const reference& ref, sink& to) { return net::pull("there", ref, to).has_value(); }
