// A recipient of the engine of hosts, over a stream of bytes.
#include "byte_line.hpp"
#include "engine.hpp"

#include <tensorpull/links/pump.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>

using namespace tensorpull;

namespace {

perceptron model;

using line = byte_line<&board::read, &board::write>;

}  // namespace

int pipeline() {
  static const engine::table table(model);
  if (!table.schema) return 1;
  static land to(table.view());
  static no_owner none;
  static ignore_messages inbox;
  static buffer_pool<> pool;
  static endpoint<engine::framing, engine::limits, no_owner, ignore_messages> end(none, pool, inbox);
  static transfer<land, fixed_bytes<chunk_bytes>, engine::image_digest, engine::limits> pull(
      to, {.ref = {1, 2}, .recipient = {3}}, {}, 1);
  line stream;
  end.begin_pull();
  const std::uint32_t began = board::now_ms();
  while (!pull.ended()) {
    if (const auto did = pump_once(end, pull, stream, {}); !did) pull.fail(did.error());
    else if (board::now_ms() - began > 60'000) pull.fail({errc::timed_out, 0, 0, {}});
  }
  end.end_pull(pull);
  const auto done = pull.outcome();
  return done && done->outcome == outcome::completed ? 0 : 2;
}
