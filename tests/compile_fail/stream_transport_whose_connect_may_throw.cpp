// A transport over streams whose connect is not noexcept, used for a session.
// EXPECT: tensorpull: a transport over streams connects: static result<stream> connect(std::string_view address
// WITHIN_LINES: 8
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : stream_transport<mine, posix_stream> {
  static result<posix_stream> connect(std::string_view, std::chrono::milliseconds, const stop_token&) {
    return failure(errc::io);
  }
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, mine>;
bool begin() { return net::session::connect("there").has_value(); }
