// A datagram link of your own: a class that sends and receives whole datagrams, and a policy that opens it. These are
// enough for pulls, sessions and an owner. Here: a radio between two devices with datagrams of 256 bytes, of which it
// loses every tenth. A pair of sockets stands in for the air.
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/transports/over/datagram_transport.hpp>
#include <tensorpull/transports/peers/owner.hpp>

#include <cstdio>
#include <stop_token>
#include <thread>

using namespace tensorpull;

/// The link has what links/datagram_link.hpp requires.
class radio {
 public:
  using address = only_peer;  // there is one other radio
  static constexpr std::size_t max_datagram_bytes = 256;
  static constexpr bool checked = true;                 // the modem drops what was damaged
  static constexpr bool addresses_are_proved = true;    // nobody else is in the air

  explicit radio(int modem) noexcept : modem_(modem) {}
  std::size_t datagram_bytes() const noexcept { return max_datagram_bytes; }
  io_result receive(std::span<std::byte> memory, address&) noexcept {
    // n: its whole length
    const ssize_t n = ::recv(modem_.native_handle(), memory.data(), memory.size(), MSG_DONTWAIT | MSG_TRUNC);
    if (n > 0 && static_cast<std::size_t>(n) <= memory.size()) return {io_status::ok, 0, static_cast<std::size_t>(n)};
    return {io_status::would_block, 0, 0};
  }
  io_result send(std::span<const std::span<const std::byte>> datagram, const address&) noexcept {
    if (++sent_ % 10 == 0) return {};  // lost
    return modem_.write_some(datagram);
  }
  io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    return modem_.wait(read, write, timeout);
  }

 private:
  posix_stream modem_;
  unsigned sent_ = 0;
};
static_assert(datagram_link<radio>);

int air[2];

/// The policy for the transport slot: one end connects, the other one waits for a peer that sends.
struct by_radio : datagram_transport<by_radio, radio> {
  static result<radio> connect(std::string_view, std::chrono::milliseconds, const stop_token&) noexcept {
    return radio(::dup(air[1]));
  }
  static result<radio> open(std::string_view) noexcept { return radio(::dup(air[0])); }
};

struct model {
  float weight[64][32], bias[64];
};
BOOST_HANA_ADAPT_STRUCT(model, weight, bias);

int main() {
  using net = pipeline<raw_tensors<model>, fit_datagram, by_radio>;  // chunks of 176 bytes, each behind a prefix of 80
  if (::socketpair(AF_UNIX, SOCK_DGRAM, 0, air) != 0) return 1;
  static model trained{}, copy;
  trained.bias[3] = 7;
  auto owner = net::downloader::open();
  if (!owner) return 1;
  const auto ref = owner->add_tensors(std::as_const(trained), {.recipients = 1});
  if (!ref) return 1;
  std::jthread serving([&](std::stop_token stop) { owner->run(until_settled(*ref), stop); });

  const auto done = net::download_tensors("the owner", *ref, copy);
  const bool equal = done && copy.bias[3] == 7;
  std::printf("%s, %s, over a radio that loses every tenth datagram\n",
              done ? to_string(done->outcome).data() : to_string(done.error().code).data(),
              equal ? "equal" : "not equal");
  return equal ? 0 : 1;
}
