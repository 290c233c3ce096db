// Transports whose calls are missing or may throw.
#include "model.hpp"

// CASE transport_whose_pull_may_throw
// EXPECT: tensorpull: a transport pulls (requirement 7)
struct mine : loopback {
  template <class Parts, class Owner, consumer Consumer>
  static result<receipt> pull(Owner&& from, const reference& ref, Consumer& to, const pull_options& options,
                              typename Parts::chunking chunking) {
    return loopback::pull<Parts>(from, ref, to, options, chunking);
  }
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, mine>;
bool get(mlp& model, net::downloader& owner, const reference& ref) {
  return net::download_tensors(owner, ref, model).has_value();
}

// CASE transport_without_pull
// EXPECT: tensorpull: a transport pulls (requirement 7)
struct mine : tcp {
  void pull() = delete;
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, mine>;
bool get(mlp& model, const reference& ref) { return net::download_tensors("there", ref, model).has_value(); }

// CASE stream_transport_whose_connect_may_throw
// EXPECT: tensorpull: a transport over streams connects: static result<stream> connect(std::string_view address
// WITHIN_LINES: 8
struct mine : stream_transport<mine, posix_stream> {
  static result<posix_stream> connect(std::string_view, std::chrono::milliseconds, const stop_token&) {
    return failure(errc::io);
  }
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, mine>;
bool begin() { return net::session::connect("there").has_value(); }

// CASE stream_transport_without_connect
// EXPECT: tensorpull: a transport over streams connects: static result<stream> connect(std::string_view address
// WITHIN_LINES: 8
struct mine : stream_transport<mine, posix_stream> {};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, mine>;
bool get(mlp& model, const reference& ref) { return net::download_tensors("there", ref, model).has_value(); }
