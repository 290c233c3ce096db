// Transports that lack something.
#include "model.hpp"

struct mine : loopback {
  // CASE transport_without_anyone_answers
  // EXPECT: tensorpull: a transport says what it is (requirement 4)
  void anyone_answers() = delete;
  // CASE transport_without_connection_bytes
  // EXPECT: tensorpull: a transport says what it keeps for a connection (requirement 3)
  void connection_bytes() = delete;
  // CASE transport_without_downloader
  // EXPECT: tensorpull: a transport names its owner (requirement 5)
  struct downloader;
  // CASE transport_without_identifies
  // EXPECT: tensorpull: a transport says what it is (requirement 4)
  void identifies() = delete;
  // CASE transport_without_max_payload_bytes
  // EXPECT: tensorpull: a transport says how much one frame carries (requirement 2)
  static constexpr int max_payload_bytes = 1024;
  // CASE transport_without_session
  // EXPECT: tensorpull: a transport names its connection for both sides (requirement 6)
  struct session;
  // EACH ENDS WITH
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, mine>::model_type model;
