// A consumer whose `read_back` gives no image.
// EXPECT: tensorpull: a consumer whose memory can be read gives it as an image (requirement 10)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct sink : detail::null_consumer {
  int read_back() const noexcept { return 1; }
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, tcp>;
bool pull(const reference& ref, sink& to) { return net::pull("there", ref, to).has_value(); }
