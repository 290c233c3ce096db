// Which source of a pull may be asked for which part, if each of them has the whole image.
#pragma once

#include <tensorpull/framing/frame.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/satellites/parallel/chunk_ledger.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <cstddef>
#include <cstdint>

namespace tensorpull {

/// The plan of a checked_transfer where any source gives any part. Another plan has the same members.
struct every_source {
  static constexpr std::uint8_t most_lines = 8;  ///< of a pull
  static constexpr std::size_t most_parts = detail::most_parts;  ///< of an image
  /// Parts that a line may claim, of so many, with so many lines.
  static constexpr std::size_t most_claimed(std::size_t parts, std::size_t lines) noexcept {
    return std::max<std::size_t>(2, parts / (4 * lines));
  }
  /// Whether a source may be asked for a part that it has not begun: 0: it may not; the part with the most is asked
  /// for. `free`: others were too slow.
  static constexpr unsigned gives(std::uint8_t, std::size_t, bool) noexcept { return 1; }
  /// Each time that a source's parts are given to others again, that waits twice as long, so often at most.
  static constexpr unsigned most_repeats = 16;
  /// Whether a part that a source has begun is left to it while its connection is lost.
  static constexpr bool goes_on = true;
  /// Whether a source counts this recipient, and is told that it has everything.
  static constexpr bool settles(std::uint8_t) noexcept { return true; }
  /// The consumer has begun, and parts of 2^shift bytes land now. `first`: the bytes of those that have the header.
  /// `right(part)`: those that are there already.
  static constexpr void begun(const auto&, const description&, std::uint8_t, std::uint64_t, const auto&) noexcept {}
  /// A part is right, and a source has given it.
  static constexpr void right(std::uint8_t, std::size_t) noexcept {}
  /// A source was busy, or gave wrong bytes.
  static constexpr void refused(std::uint8_t) noexcept {}
  static constexpr void dropped(std::uint8_t) noexcept {}  ///< see there
  /// Takes the messages of a source.
  static constexpr ignore_messages handler_of(std::uint8_t) noexcept { return {}; }
};

/// The same for a consumer that wants some parts alone: they are short, so that few other bytes are fetched.
struct short_parts : every_source {
  static constexpr std::size_t most_parts = 512;  ///< of an image
  /// As every_source has it, and eight at most.
  static constexpr std::size_t most_claimed(std::size_t parts, std::size_t lines) noexcept {
    return std::min<std::size_t>(every_source::most_claimed(parts, lines), 8);
  }
};

}  // namespace tensorpull
