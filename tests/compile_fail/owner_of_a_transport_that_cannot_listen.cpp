// An owner over a transport that connects and does not listen.
// EXPECT: tensorpull: this transport cannot have an owner: it needs `static result<L> listen(std::string_view address) noexcept`
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 30
#include "model.hpp"

#include <tensorpull/transports/host/owner.hpp>

struct mine : stream_transport<mine, posix_stream> {
  static result<posix_stream> connect(std::string_view, std::chrono::milliseconds, const stop_token&) noexcept {
    return failure(errc::connection_failed);
  }
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, mine>;
auto owner = net::downloader::open({.listen = "here"});
