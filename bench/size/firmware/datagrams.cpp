// A recipient of the engine of hosts, over datagrams on a line of bytes, as the transport `serial` speaks.
#include "engine.hpp"

#include <tensorpull/links/serial/serial_link.hpp>
#include <tensorpull/protocol/datagrams/datagram_endpoint.hpp>
#include <tensorpull/protocol/datagrams/datagram_transfer.hpp>
#include <tensorpull/pull/datagram_step.hpp>

using namespace tensorpull;

namespace {

perceptron model;
constexpr std::size_t datagram_bytes = chunk_bytes + 80;
using link_type = serial_link<board::device, datagram_bytes>;

}  // namespace

int pipeline() {
  static const engine::table table(model);
  if (!table.schema) return 1;
  static land to(table.view());
  static no_owner none;
  static ignore_messages inbox;
  static buffer_pool<> pool;
  static link_type link{board::device()};
  static datagram_endpoint<engine::framing, engine::limits, no_owner, ignore_messages> end(
      none, pool, inbox, link.datagram_bytes(), board::random());
  static datagram_transfer<land, fixed_bytes<chunk_bytes>, engine::image_digest, engine::limits> pull(
      to, {.ref = {1, 2}, .recipient = {3}}, {}, static_cast<std::uint32_t>(board::random()));
  static detail::datagram_memory<link_type> come;
  alignas(8) static std::byte scratch[datagram_bytes / 8 * 8];
  pull.fits(link.datagram_bytes());
  end.begin_pull();
  const std::uint32_t began = board::now_ms();
  while (!pull.ended()) {
    const std::uint32_t now = board::now_ms();
    if (const auto did = step_datagrams(end, pull, link, scratch, come, std::chrono::milliseconds(now)); !did)
      pull.fail(did.error());
    else if (now - began > 60'000) pull.fail({errc::timed_out, 0, 0, {}});
  }
  end.end_pull(pull);
  const auto done = pull.outcome();
  return done && done->outcome == outcome::completed ? 0 : 2;
}
