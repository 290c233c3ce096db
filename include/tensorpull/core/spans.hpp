// Lists of pieces of memory: what a write gathers, and what a read is scattered over.
#pragma once

#include <cstddef>
#include <span>

namespace tensorpull {

using gather_list = std::span<const std::span<const std::byte>>;  ///< to be sent, in order
using scatter_list = std::span<const std::span<std::byte>>;  ///< to be filled, in order

}  // namespace tensorpull
