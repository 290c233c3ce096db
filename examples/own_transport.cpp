// A transport of your own: a stream over another stream. Here a recipient takes at most 4 MiB of its line in any
// second, so that a device's other work gets the rest. The owner has plain TCP and knows nothing of it.
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/transports/host/owner.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <stop_token>
#include <string>
#include <thread>

using namespace tensorpull;
using std::chrono::steady_clock;

/// A byte stream over the stream Next, which reads at most BytesPerSecond in any second. What it does not read stays in
/// the kernel, whose window then holds back the sender.
template <byte_stream Next, std::uint64_t BytesPerSecond>
class at_most {
 public:
  explicit at_most(Next next) noexcept : next_(std::move(next)) {}

  io_result read_some(std::span<const std::span<std::byte>> in) noexcept {
    const auto now = steady_clock::now().time_since_epoch();
    std::uint64_t left = rate.left(used_, now);
    if (left == 0) return {.status = io_status::would_block};
    std::array<std::span<std::byte>, 8> here;
    std::size_t n = 0;
    for (; n < here.size() && n < in.size() && left > 0; ++n) {
      here[n] = in[n].first(std::min<std::uint64_t>(left, in[n].size()));
      left -= here[n].size();
    }
    const io_result io = next_.read_some(std::span(here).first(n));
    rate.use(used_, io.bytes, now);
    return io;
  }
  io_result write_some(std::span<const std::span<const std::byte>> out) noexcept { return next_.write_some(out); }
  io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    const bool may_read = rate.left(used_, steady_clock::now().time_since_epoch()) > 0;
    if (read && !may_read) timeout = std::min(timeout, std::chrono::milliseconds(10));  // then there is some rate again
    return next_.wait(read && may_read, write, timeout);
  }

 private:
  static constexpr byte_rate rate{BytesPerSecond};
  Next next_;
  byte_rate::used used_;
};

/// The policy for the transport slot: it connects. It has no listen(), so only recipients can use it.
struct part_of_tcp : stream_transport<part_of_tcp, at_most<posix_stream, 4 * 1024 * 1024>> {
  static result<stream> connect(std::string_view to, std::chrono::milliseconds timeout,
                                const stop_token& stop) noexcept {
    auto socket = tcp::connect(to, timeout, stop);
    if (!socket) return failure(socket.error());
    return stream(std::move(*socket));
  }
};

struct model {
  float weight[1024][512], bias[512];
};
BOOST_HANA_ADAPT_STRUCT(model, weight, bias);

int main() {
  static model trained{}, copy;
  trained.bias[3] = 7;
  auto owner = pipeline<raw_tensors<model>, fixed_bytes<64_KiB>, tcp>::downloader::open({.listen = "127.0.0.1:0"});
  if (!owner) return 1;
  const auto ref = owner->add_tensors(std::as_const(trained), {.recipients = 1});
  if (!ref) return 1;
  std::jthread serving([&](std::stop_token stop) { owner->run(until_settled(*ref), stop); });

  using net = pipeline<raw_tensors<model>, fixed_bytes<64_KiB>, part_of_tcp>;
  const auto begin = steady_clock::now();
  const auto done = net::download_tensors("127.0.0.1:" + std::to_string(owner->port()), *ref, copy);
  const auto took = steady_clock::now() - begin;  // 2 MiB take half a second, less what was saved up beforehand
  std::printf("%s, %s\n", done ? to_string(done->outcome).data() : to_string(done.error().code).data(),
              took >= std::chrono::milliseconds(400) ? "and left the line to others" : "too fast");
  return done && copy.bias[3] == 7 && took >= std::chrono::milliseconds(400) ? 0 : 1;
}
