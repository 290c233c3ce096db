// Flash: memory that keeps its bytes without power, is erased a page at once, and is programmed a unit at once. The
// landing of a device writes to it.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

/// A flash memory F, inside a microcontroller or behind a bus:
///  1. `F::page_bytes`, a multiple of `F::program_bytes`: what is erased at once. `F::program_bytes`, a power of two:
///     the least that is programmed at once;
///  2. `f.erase(page)` makes a page blank, whatever its bytes are then. Pages count from 0; page p begins at the byte
///     p * page_bytes;
///  3. `f.program(at, bytes)` writes to units that are blank. Position and length are multiples of program_bytes, the
///     range may cross pages, and in the machine's memory the bytes may begin anywhere. After a power cut a unit is
///     programmed once more with the same bytes, unless 7. forbids it;
///  4. `f.read(at, out)` copies bytes, from any position, of any length. A unit that was torn may be an error;
///  5. each call waits until it is done, and returns whether it worked: a position outside the memory is an error, too.
///     A power cut in the middle of a call leaves some of its bits done and others not, and no byte outside the page or
///     the units that the call was for changes;
///  6. no call throws or allocates;
///  7. optionally, `F::programs_once` is true if a unit that is not blank cannot be programmed: flash with a checksum
///     over each unit (ECC), or whose blank bytes are 0. A transfer then goes on at the page that was torn.
template <class F>
concept flash_memory = requires(F& f, std::uint32_t place, std::span<const std::byte> in, std::span<std::byte> out) {
  requires std::convertible_to<decltype(F::page_bytes), std::uint32_t> &&
               std::convertible_to<decltype(F::program_bytes), std::uint32_t>;
  requires std::has_single_bit(std::uint32_t{F::program_bytes}) && F::page_bytes % F::program_bytes == 0 &&
               F::page_bytes >= F::program_bytes;
  { f.erase(place) } noexcept -> std::same_as<bool>;
  { f.program(place, in) } noexcept -> std::same_as<bool>;
  { f.read(place, out) } noexcept -> std::same_as<bool>;
};

namespace detail::embedded {
template <class Flash>
inline constexpr bool programs_once = [] {
  if constexpr (requires { Flash::programs_once; }) return bool{Flash::programs_once};
  else return false;
}();
}  // namespace detail::embedded

}  // namespace tensorpull
