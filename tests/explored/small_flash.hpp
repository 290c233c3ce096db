// Flash of a few pages, as plain bytes: it keeps the rules of its kind, and loses its power at an operation.
#pragma once

#include "support/words.hpp"

#include <tensorpull/embedded/flash.hpp>

#include <algorithm>
#include <array>
#include <cstring>

namespace test {

/// `Once`: a unit that is not blank refuses to be programmed, and one that was torn cannot be read.
template <bool Once>
struct small_flash {
  static constexpr std::uint32_t page_bytes = 64, program_bytes = 8, pages = 4;
  static constexpr bool programs_once = Once;
  /// When the power goes: ahead of the operation, in the middle of it in one of two ways, or behind it.
  enum way : std::uint8_t {
    before,
    in_half,
    in_some_bits,
    after
  };
  enum unit : std::uint8_t {
    blank,
    programmed,
    torn
  };

  std::byte bytes[pages * page_bytes];
  unit units[pages * page_bytes / program_bytes];
  bool misused, off;
  std::uint8_t operations_left;  // before that which is cut; 0: none is
  way how;
  std::uint8_t none[4];

  /// What somebody else has left.
  void fill() noexcept {
    std::fill(std::begin(bytes), std::end(bytes), std::byte{0xa5});
    std::fill(std::begin(units), std::end(units), programmed);
  }
  void cut_at(unsigned operation, unsigned in_which_way) noexcept {
    operations_left = static_cast<std::uint8_t>(operation + 1);
    how = static_cast<way>(in_which_way);
  }
  /// Whether the power had gone.
  bool back_on() noexcept {
    operations_left = 0, how = before;
    return std::exchange(off, false);
  }

  bool erase(std::uint32_t page) noexcept {
    if (off || page >= pages) return false;
    const way w = begins();
    if (w == before) return false;
    for (std::uint32_t i = 0; i < page_bytes; ++i) {
      std::byte& b = bytes[page * page_bytes + i];
      if (w == in_some_bits) b |= std::byte{0x5a};
      else if (w == after || i < page_bytes / 2) b = std::byte{0xff};
      units[(page * page_bytes + i) / program_bytes] = w == after ? blank : torn;
    }
    return !off;
  }
  bool program(std::uint32_t at, const_byte_span in) noexcept {
    if (off) return false;
    if (at % program_bytes != 0 || in.size() % program_bytes != 0 || at + in.size() > sizeof bytes) {
      misused = true;
      return false;
    }
    const way w = begins();
    if (w == before) return false;
    const std::size_t half = in.size() / 2;
    for (std::size_t i = 0; i < in.size(); ++i) {
      std::byte& b = bytes[at + i];
      unit& u = units[(at + i) / program_bytes];
      if (w == in_half && i >= half) {
        if (i == half && half % program_bytes != 0) u = torn;
        break;
      }
      if (i % program_bytes == 0) {
        misused = misused || (u != blank && (Once || u == programmed) && !same(b, in.subspan(i, program_bytes)));
        if (Once && u != blank) return false;
        u = w == in_some_bits ? torn : programmed;
      }
      b &= in[i] | (w == in_some_bits ? std::byte{0x33} : std::byte{0});
    }
    return !off;
  }
  bool read(std::uint32_t at, byte_span out) noexcept {
    if (off || at + out.size() > sizeof bytes) return false;
    for (std::size_t i = 0; i < out.size(); ++i)
      if (Once && units[(at + i) / program_bytes] == torn) return false;
    std::copy_n(bytes + at, out.size(), out.begin());
    return true;
  }

 private:
  way begins() noexcept {
    if (operations_left == 0 || --operations_left > 0) return after;
    off = true;
    return how;
  }
  static bool same(const std::byte& there, const_byte_span in) noexcept {
    return !Once && std::memcmp(&there, in.data(), in.size()) == 0;
  }
};

}  // namespace test
