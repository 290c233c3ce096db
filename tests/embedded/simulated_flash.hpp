// A flash memory in this process that keeps the rules of NOR flash, counts what is done to it, and loses its power at a
// given operation.
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

template <std::uint32_t PageBytes, std::uint32_t ProgramBytes>
class simulated_flash {
 public:
  static constexpr std::uint32_t page_bytes = PageBytes, program_bytes = ProgramBytes;
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

  /// Holds what nobody has erased: the last owner's bytes, or blank ones that cannot be trusted to be.
  simulated_flash(std::uint32_t pages, std::uint64_t seed, bool blank = false)
      : random_(seed), bytes_(pages * page_bytes, std::byte{0xff}), units_(pages * page_bytes / program_bytes),
        erases_(pages) {
    if (!blank) random_.fill(bytes_);
  }

  bool erase(std::uint32_t page) noexcept {
    if (!on_) return false;
    if (page >= erases_.size()) return complain("a page outside was erased");
    const auto kind = begin();
    if (kind == what::nothing) return false;
    ++erases_[page];
    for (std::uint32_t u = 0; u < page_bytes / program_bytes; ++u)
      units_[page * page_bytes / program_bytes + u] = {kind == what::half ? state::unknown : state::erased, power_, {}};
    const byte_span there(bytes_.data() + page * page_bytes, page_bytes);
    const std::uint64_t how = random_.below(4);
    for (std::size_t i = 0; i < there.size(); ++i) {
      const std::byte erased = there[i] | static_cast<std::byte>(random_());
      if (kind != what::half) there[i] = std::byte{0xff};
      else if (how == 0) there[i] = erased;  // some bits of each byte
      else if (how == 1) there[i] = random_.below(2) == 0 ? std::byte{0xff} : there[i];
      else if (how == 2) there[i] = static_cast<std::byte>(random_());
      else there[i] = i < page_bytes / 2 ? std::byte{0xff} : there[i];
    }
    return on_;
  }

  bool program(std::uint32_t at, const_byte_span in) noexcept {
    if (!on_) return false;
    if (at % program_bytes != 0 || in.size() % program_bytes != 0 || in.empty())
      return complain("a part of a unit was programmed");
    if (at > bytes_.size() || in.size() > bytes_.size() - at) return complain("bytes outside were programmed");
    const auto kind = begin();
    if (kind == what::nothing) return false;
    ++programs_;
    const std::uint64_t how = random_.below(3), until = random_.below(in.size() + 1);
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (i % program_bytes == 0) check_unit(units_[(at + i) / program_bytes], in.subspan(i, program_bytes));
      std::byte mask{kind != what::half || (how == 1 && i < until) ? std::uint8_t{0xff} : std::uint8_t{0}};
      if (kind == what::half && how == 0) mask = static_cast<std::byte>(random_());
      bytes_[at + i] &= in[i] | ~mask;
      if (at + i == worn_at_) bytes_[at + i] = (bytes_[at + i] | ones_) & ~zeros_;
    }
    return on_;
  }

  bool read(std::uint32_t at, byte_span out) noexcept {
    if (!on_) return false;
    if (at > bytes_.size() || out.size() > bytes_.size() - at) return false;
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
  /// The power goes at the operation after `n` more.
  void cut_after(std::uint64_t n, power_cut kind) noexcept {
    cut_at_ = operations_ + n;
    kind_ = kind;
  }
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
  /// What was done that NOR flash does not allow; empty: nothing.
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
  };

  bool complain(const char* text) {
    if (complaint_.empty()) complaint_ = text;
    return false;
  }
  what begin() noexcept {
    if (operations_++ != cut_at_) return what::all;
    on_ = false;
    if (kind_ == power_cut::before) return what::nothing;
    return kind_ == power_cut::within ? what::half : what::all;
  }
  void check_unit(unit& u, const_byte_span in) {
    if (u.is == state::unknown) complain("a unit was programmed that was not erased");
    if (u.is == state::programmed && !std::equal(in.begin(), in.end(), u.given.begin()))
      complain("a unit was programmed again with other bytes");
    if (u.is == state::programmed && u.power == power_) complain("a unit was programmed twice without a power cut");
    u = {state::programmed, power_, {in.begin(), in.end()}};
  }

  generator random_;
  byte_vector bytes_;
  std::vector<unit> units_;
  std::vector<std::uint64_t> erases_;
  std::uint32_t worn_at_ = ~0u;
  std::byte ones_{}, zeros_{};
  std::uint64_t operations_ = 0, programs_ = 0, cut_at_ = never, power_ = 0;
  power_cut kind_ = power_cut::before;
  bool on_ = true;
  std::string complaint_;
};

static_assert(tensorpull::flash_memory<simulated_flash<256, 4>>);

}  // namespace test
