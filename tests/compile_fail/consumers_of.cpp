// Where a consumer without `commit` can be given.
// EXPECT: tensorpull: a consumer takes bytes that arrived (requirement 5)
#include "model.hpp"

#include <tensorpull/consumers/tee.hpp>

struct sink : detail::null_consumer {
  void commit() = delete;
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, tcp>;

// CASE consumer_of_pull_over_without_commit
bool pull(posix_stream& from, const reference& ref, sink& to) {
  return pull_over<net::parts>(from, ref, to).has_value();
}

// CASE consumer_of_pull_with_without_commit
bool pull(const reference& ref, sink& to) {
  const auto connect = []() -> result<posix_stream> { return failure(errc::io); };
  return pull_with<net::parts>(connect, [](std::chrono::milliseconds) {}, ref, to).has_value();
}

// CASE consumer_of_session_without_commit
bool pull(net::session& from, const reference& ref, sink& to) { return from.pull(ref, to).has_value(); }

// CASE consumer_of_tee_without_commit
// WITHIN_LINES: 8
bool pull(const reference& ref, land& first, sink& second) {
  tensorpull::tee both(first, second);
  return net::pull("there", ref, both).has_value();
}

// CASE consumer_of_transfer_without_commit
// WITHIN_LINES: 8
std::size_t bytes() { return sizeof(net::transfer<sink>); }
