// A flash memory in this process that keeps the rules of its kind, counts what is done to it, and loses its power at a
// given operation, and there at a given byte.
#pragma once

#include <tensorpull/embedded/flash.hpp>

#include "support/random.hpp"
#include "support/words.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace test {

/// When the power goes: ahead of the operation, in the middle of it, or when it is done and nobody has heard of it.
enum class power_cut {
  before,
  within,
  after
};

/// NOR flash clears bits. Flash with ECC refuses a unit that is not blank, and cannot read one that was torn. Blank
/// bytes may be 0, too, and a unit that is not is refused.
enum class flash_kind {
  nor,
  ecc,
  zero
};

template <std::uint32_t PageBytes, std::uint32_t ProgramBytes, flash_kind Kind = flash_kind::nor>
class simulated_flash {
  static constexpr std::byte blank_byte{Kind == flash_kind::zero ? std::uint8_t{0} : std::uint8_t{0xff}};

 public:
  static constexpr std::uint32_t page_bytes = PageBytes, program_bytes = ProgramBytes;
  static constexpr bool programs_once = Kind != flash_kind::nor;
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

  /// Holds what nobody has erased: the last owner's bytes, or blank ones that cannot be trusted to be.
  simulated_flash(std::uint32_t pages, std::uint64_t seed, bool blank = false)
      : random_(seed), bytes_(pages * page_bytes, blank_byte), units_(pages * page_bytes / program_bytes),
        erases_(pages) {
    if (!blank) random_.fill(bytes_);
  }

  bool erase(std::uint32_t page) noexcept {
    if (!on_) return false;
    if (page >= erases_.size()) return complain("a page outside was erased");
    const auto kind = begin(page_bytes);
    if (kind == what::nothing) return false;
    ++erases_[page];
    for (std::uint32_t u = 0; u < page_bytes / program_bytes; ++u)
      units_[page * page_bytes / program_bytes + u] = {kind == what::half ? state::unknown : state::erased, power_, {}};
    const byte_span there(bytes_.data() + page * page_bytes, page_bytes);
    const std::uint64_t how = random_.below(4), until = until_ == never ? page_bytes / 2 : until_;
    for (std::size_t i = 0; i < there.size(); ++i) {
      const std::byte erased = there[i] | static_cast<std::byte>(random_());
      if (kind != what::half) there[i] = blank_byte;
      else if (until_ == never && how == 0) there[i] = erased;  // some bits of each byte
      else if (until_ == never && how == 1) there[i] = random_.below(2) == 0 ? blank_byte : there[i];
      else if (until_ == never && how == 2) there[i] = static_cast<std::byte>(random_());
      else if (i < until) there[i] = blank_byte;
    }
    return on_;
  }

  bool program(std::uint32_t at, const_byte_span in) noexcept {
    if (!on_) return false;
    if (at % program_bytes != 0 || in.size() % program_bytes != 0 || in.empty())
      return complain("a part of a unit was programmed");
    if (at > bytes_.size() || in.size() > bytes_.size() - at) return complain("bytes outside were programmed");
    const auto kind = begin(in.size());
    if (kind == what::nothing) return false;
    ++programs_;
    const bool exact = until_ != never || programs_once;
    const std::uint64_t how = random_.below(3), any = random_.below(in.size() + 1),
                        until = until_ == never ? any : until_;
    for (std::size_t i = 0; i < in.size(); ++i) {
      unit& u = units_[(at + i) / program_bytes];
      const bool torn = kind == what::half && i / program_bytes * program_bytes + program_bytes > until;
      if (i % program_bytes == 0) {
        if (programs_once && torn && i > until) break;  // the units behind the torn one are still blank
        if (!check_unit(u, in.subspan(i, program_bytes))) return false;
        if (programs_once && torn) u.readable = random_.below(2) == 0;
      }
      std::byte mask{kind != what::half || ((how == 1 || exact) && i < until) ? std::uint8_t{0xff} : std::uint8_t{0}};
      if (kind == what::half && (exact ? i == until : how == 0)) mask = static_cast<std::byte>(random_());
      std::byte& there = bytes_[at + i];
      there = Kind == flash_kind::zero ? there | (in[i] & mask) : there & (in[i] | ~mask);
      if (at + i == worn_at_) there = (there | ones_) & ~zeros_;
    }
    return on_;
  }

  bool read(std::uint32_t at, byte_span out) noexcept {
    if (!on_) return false;
    if (at > bytes_.size() || out.size() > bytes_.size() - at) return false;
    for (std::size_t i = 0; i < out.size(); ++i)
      if (!units_[(at + i) / program_bytes].readable) return false;
    std::copy_n(bytes_.begin() + at, out.size(), out.begin());
    return true;
  }

  /// Cells at a place are worn out: after program() the bits of `ones` are 1 and those of `zeros` 0, and nothing says
  /// so.
  void wear(std::uint32_t at, std::byte ones, std::byte zeros = {}) noexcept {
    worn_at_ = at;
    ones_ = ones;
    zeros_ = zeros;
  }
  /// The power goes at the operation after `n` more, and within it at the byte `until`; never: anywhere.
  void cut_after(std::uint64_t n, power_cut kind, std::uint64_t until = never) noexcept {
    cut_at_ = operations_ + n;
    kind_ = kind;
    until_ = until;
  }
  /// Bytes of the operation at which the power went; 0: it did not.
  std::uint64_t bytes_of_cut() const noexcept { return cut_bytes_; }
  /// The power comes back.
  void restart() noexcept {
    on_ = true;
    cut_at_ = never;
    ++power_;
  }
  bool on() const noexcept { return on_; }
  /// Erased pages and calls of program() so far.
  std::uint64_t operations() const noexcept { return operations_; }
  std::uint64_t erases(std::uint32_t page) const noexcept { return erases_[page]; }
  std::uint64_t programs() const noexcept { return programs_; }
  /// The first thing done that this flash does not allow; empty: nothing was.
  const std::string& complaint() const noexcept { return complaint_; }
  byte_vector& bytes() noexcept { return bytes_; }

 private:
  enum class what {
    nothing,
    half,
    all
  };
  enum class state {
    unknown,
    erased,
    programmed
  };
  struct unit {
    state is = state::unknown;
    std::uint64_t power = 0;  // in which run of the program it was erased or programmed last
    byte_vector given;
    bool readable = true;
  };

  bool complain(const char* text) {
    if (complaint_.empty()) complaint_ = text;
    return false;
  }
  what begin(std::uint64_t bytes) noexcept {
    if (operations_++ != cut_at_) return what::all;
    on_ = false;
    cut_bytes_ = bytes;
    if (kind_ == power_cut::before) return what::nothing;
    return kind_ == power_cut::within ? what::half : what::all;
  }
  bool check_unit(unit& u, const_byte_span in) {
    if (programs_once && u.is != state::erased) return complain("a unit was programmed that was not blank");
    if (u.is == state::unknown) complain("a unit was programmed that was not erased");
    if (u.is == state::programmed && !std::equal(in.begin(), in.end(), u.given.begin()))
      complain("a unit was programmed again with other bytes");
    if (u.is == state::programmed && u.power == power_) complain("a unit was programmed twice without a power cut");
    u = {state::programmed, power_, {in.begin(), in.end()}};
    return true;
  }

  generator random_;
  byte_vector bytes_;
  std::vector<unit> units_;
  std::vector<std::uint64_t> erases_;
  std::uint32_t worn_at_ = ~0u;
  std::byte ones_{}, zeros_{};
  std::uint64_t operations_ = 0, programs_ = 0, cut_at_ = never, until_ = never, cut_bytes_ = 0, power_ = 0;
  power_cut kind_ = power_cut::before;
  bool on_ = true;
  std::string complaint_;
};

static_assert(tensorpull::flash_memory<simulated_flash<256, 4>>);

}  // namespace test
