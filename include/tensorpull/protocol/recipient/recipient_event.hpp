// What an accepted message means to the one who drives a recipient.
#pragma once

#include <cstdint>

namespace tensorpull {

enum class recipient_event : std::uint8_t {
  nothing,
  described,        ///< data may come; the consumer has not begun yet
  described_again,  ///< after restart(): the same as before
  chunk,            ///< land it
  ignored_chunk,    ///< nobody waits for it: throw it away
  confirmed,
  busy,             ///< nothing more is asked before restart()
};

}  // namespace tensorpull
