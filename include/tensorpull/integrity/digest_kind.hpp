// Which digest a chunk carries, as the wire numbers it.
#pragma once

#include <cstdint>

namespace tensorpull {

enum class digest_kind : std::uint8_t { none, xxh3_64, crc32c };

}  // namespace tensorpull
