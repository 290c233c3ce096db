// The hash of a digest, as frames name it.
#pragma once

#include <cstdint>

namespace tensorpull {

/// The hash that a digest is computed with. Frames carry these values, so their order must not change. 128 to 255 are
/// private: programs that agree on a hash of their own name it with one of them, such as
/// `static_cast<digest_kind>(128)`, and no version of the library gives it a meaning.
enum class digest_kind : std::uint8_t {
  none,
  xxh3_64,
  crc32c,
};

}  // namespace tensorpull
