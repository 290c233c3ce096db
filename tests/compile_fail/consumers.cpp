// Consumers that lack something.
#include "model.hpp"

struct sink : detail::null_consumer {
  // CASE consumer_without_abandon
  // EXPECT: tensorpull: a consumer is told how a transfer failed (requirement 8)
  void abandon() = delete;
  // CASE consumer_without_begin
  // EXPECT: tensorpull: a consumer is told what comes (requirement 3)
  void begin() = delete;
  // CASE consumer_without_chunk
  // EXPECT: tensorpull: a consumer is told of each whole chunk (requirement 6)
  void chunk() = delete;
  // CASE consumer_without_commit
  // EXPECT: tensorpull: a consumer takes bytes that arrived (requirement 5)
  void commit() = delete;
  // CASE consumer_without_fingerprint
  // EXPECT: tensorpull: a consumer says what it takes (requirement 2)
  void fingerprint() = delete;
  // CASE consumer_without_finish
  // EXPECT: tensorpull: a consumer is told that all is there (requirement 7)
  void finish() = delete;
  // CASE consumer_without_irrevocable
  // EXPECT: tensorpull: a consumer says whether it can undo (requirement 1)
  void irrevocable() = delete;
  // CASE consumer_without_prepare
  // EXPECT: tensorpull: a consumer gives memory for bytes (requirement 4)
  void prepare() = delete;
  // CASE consumer_without_schema
  // EXPECT: tensorpull: a consumer says what it takes (requirement 2)
  void schema() = delete;
  // EACH ENDS WITH
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback>;
bool pull(net::downloader& from, const reference& ref, sink& to) { return net::pull(from, ref, to).has_value(); }
