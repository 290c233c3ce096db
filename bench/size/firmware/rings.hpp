// The other end of a line of rings.
#pragma once

#include "board.hpp"

/// Does what there is to do for the other end, and returns.
void other_end();

namespace rings {

/// Takes what the pipeline has sent.
std::size_t read(std::span<std::byte> memory) noexcept;
/// Sends to the pipeline.
std::size_t write(std::span<const std::byte> bytes) noexcept;

}  // namespace rings
