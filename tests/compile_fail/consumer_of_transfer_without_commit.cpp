// A consumer without `commit`, given to a transfer.
// EXPECT: tensorpull: a consumer takes bytes that arrived (requirement 5)
// WITHIN_LINES: 8
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct sink : detail::null_consumer {
  void commit() = delete;
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, tcp>;
std::size_t bytes() { return sizeof(net::transfer<sink>); }
