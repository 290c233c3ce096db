// The other end of a stream: a host's engine, which owns the model.
#include "byte_line.hpp"
#include "host.hpp"
#include "rings.hpp"

#include <tensorpull/framing/word_framing.hpp>
#include <tensorpull/links/pump.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>

using namespace tensorpull;

namespace {

using line = byte_line<&rings::read, &rings::write>;

perceptron model;
alignas(64) std::byte scratch[2048];

}  // namespace

void other_end() {
  static const engine::table table(model);
  static host::owner_type references(host::storage, [] { return std::uint64_t{12345}; });
  static const bool published = host::publish(references, model, table);
  static ignore_messages inbox;
  static buffer_pool<> pool;
  static endpoint<host::framing, host::limits, host::owner_type, ignore_messages> end(references, pool, inbox);
  no_transfer idle;
  line stream;
  if (published) (void)pump_once(end, idle, stream, scratch);
}
