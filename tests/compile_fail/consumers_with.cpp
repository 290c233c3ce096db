// Consumers with an optional call that has other arguments.
#include "model.hpp"

struct sink : detail::null_consumer {
  // CASE consumer_with_a_wrong_confirmed
  // EXPECT: tensorpull: a consumer that is told of the owner's answer is told without arguments (requirement 11)
  void confirmed(int) noexcept {}
  // CASE consumer_with_a_wrong_read_back
  // EXPECT: tensorpull: a consumer whose memory can be read gives it as an image (requirement 10)
  int read_back() const noexcept { return 1; }
  // CASE consumer_with_a_wrong_rewind
  // EXPECT: tensorpull: a consumer that can take a chunk twice is told where it began (requirement 9)
  bool rewind(std::uint32_t, int) noexcept { return true; }
  // EACH ENDS WITH
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, tcp>;
bool pull(const reference& ref, sink& to) { return net::pull("there", ref, to).has_value(); }
