// A transport of your own: a class for one end of a connection, a listener, and a policy that connects and listens.
// These are enough for pulls, sessions and an owner of many connections. Here: local sockets, whose addresses are
// paths.
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/transports/host/owner.hpp>

#include <sys/un.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>

using namespace tensorpull;

/// The stream is any class that reads, writes and waits as links/byte_stream.hpp requires. Here it is the library's own
/// stream for sockets.
using local_stream = posix_stream;

/// The listener, which accepts without waiting (stream_listener).
class local_listener {
 public:
  explicit local_listener(int fd) noexcept : socket_(fd) {}
  int native_handle() const noexcept { return socket_.native_handle(); }
  result<local_stream> accept() noexcept {
    local_stream s(::accept4(native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (s.native_handle() >= 0) return s;
    return failure(errno == EAGAIN || errno == ECONNABORTED ? errc::timed_out : errc::out_of_memory, 0, {}, errno);
  }

 private:
  local_stream socket_;
};

/// The policy for the transport slot: connects and, for owners, listens.
struct local : stream_transport<local, local_stream> {
  /// A local socket connects at once or not at all, so there is nothing to wait for within the time or until `stop`.
  static result<local_stream> connect(std::string_view path, std::chrono::milliseconds, const stop_token&) noexcept {
    return open<local_stream>(path, ::connect);
  }
  static result<local_listener> listen(std::string_view path) noexcept {
    return open<local_listener>(
        path, [](int fd, const sockaddr* a, socklen_t n) { return ::bind(fd, a, n) != 0 ? -1 : ::listen(fd, 64); });
  }

 private:
  template <class End, class Call>
  static result<End> open(std::string_view path, Call call) noexcept {
    sockaddr_un a{AF_UNIX, {}};
    if (path.size() >= sizeof a.sun_path) return failure(errc::bad_address, 0, path);
    path.copy(a.sun_path, path.size());
    End end(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));  // no call waits: a full queue is EAGAIN
    if (end.native_handle() >= 0 && call(end.native_handle(), reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0)
      return end;
    return failure(errc::connection_failed, 0, path, errno);
  }
};

struct model {
  float weight[128][784], bias[128];
};
BOOST_HANA_ADAPT_STRUCT(model, weight, bias);

int main() {
  using net = pipeline<raw_tensors<model>, fixed_bytes<64_KiB>, local>;
  static model trained{}, copies[4];
  trained.bias[3] = 7;
  const std::string path = std::filesystem::temp_directory_path() / ("tensorpull." + std::to_string(::getpid()));
  auto owner = net::downloader::open({.listen = path});
  if (!owner) return 1;
  const auto ref = owner->add_tensors(std::as_const(trained), {.recipients = 4});
  if (!ref) return 1;
  std::jthread serving([&](std::stop_token stop) { owner->run(until_settled(*ref), stop); });

  bool equal = true;
  for (model& copy : copies) {
    const auto done = net::download_tensors(path, *ref, copy);
    std::printf("%s\n", done ? to_string(done->outcome).data() : to_string(done.error().code).data());
    equal = equal && done && copy.bias[3] == 7;
  }
  std::filesystem::remove(path);
  return equal ? 0 : 1;
}
