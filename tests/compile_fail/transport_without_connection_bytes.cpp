// A transport that does not say what it keeps for a connection.
// EXPECT: tensorpull: a transport says what it keeps for a connection (requirement 3)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include <tensorpull/tensorpull.hpp>

struct mlp {
  float w[4][3], b[4];
};
BOOST_HANA_ADAPT_STRUCT(mlp, w, b);

using namespace tensorpull;

struct mine {
  using is_transport_policy = void;
  static constexpr std::uint64_t max_payload_bytes = tensorpull::max_payload_bytes;
  template <class Parts>
  using downloader = loopback::downloader<Parts>;
  template <class Parts>
  using session = loopback::session<Parts>;
  template <class Parts, class Where, class Consumer>
  static result<receipt> pull(Where&, const reference&, Consumer&, const pull_options&,
                              typename Parts::chunking) noexcept;
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, mine>::model_type model;
