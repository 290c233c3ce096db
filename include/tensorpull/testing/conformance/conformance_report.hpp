// The result of a conformance check: one line for each requirement, with its number, for people and for tests. It needs
// no heap.
#pragma once

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string_view>

namespace tensorpull::testing {

/// How one check ended.
enum class check_result : std::uint8_t {
  passed,
  failed,
  skipped,
};

/// The result for one requirement.
struct conformance_check {
  std::string_view number;  ///< the requirement's number in the concept, and which part of it
  std::string_view what;  ///< what is required, in a few words
  check_result result = check_result::passed;  ///< how it ended
  std::array<char, 160> why{};  ///< what happened instead, or why the check was skipped; ends with a zero

  /// `why` as text; empty if it passed.
  std::string_view explanation() const noexcept { return why.data(); }
};

/// A list of checks, in the order in which they were made.
class conformance_report {
 public:
  static constexpr std::size_t capacity = 64;  ///< the most checks that it holds; later ones are left out

  /// All checks so far; valid as long as the report.
  std::span<const conformance_check> checks() const noexcept { return {checks_.data(), count_}; }
  /// Whether nothing failed and something was checked.
  bool passed() const noexcept { return count(check_result::failed) == 0 && count_ > 0; }
  /// How many checks have this result.
  std::size_t count(check_result r) const noexcept {
    std::size_t n = 0;
    for (const conformance_check& c : checks()) n += c.result == r ? 1 : 0;
    return n;
  }
  /// The check with this number, such as "2.3"; nullptr if there is none.
  const conformance_check* find(std::string_view number) const noexcept {
    for (const conformance_check& c : checks())
      if (c.number == number) return &c;
    return nullptr;
  }
  /// Whether there is a check with this number that failed.
  bool failed(std::string_view number) const noexcept {
    const conformance_check* const c = find(number);
    return c != nullptr && c->result == check_result::failed;
  }

  /// Begins a check. It passes unless fail() or skip() is called before the next one begins. The views are kept, so
  /// pass literals.
  void begin(std::string_view number, std::string_view what) noexcept {
    if (count_ < capacity) checks_[count_++] = {number, what};
  }
  /// Marks the current check as failed. Only the first explanation is kept.
  [[gnu::format(printf, 2, 3)]] void fail(const char* format, ...) noexcept {
    std::va_list list;
    va_start(list, format);
    explain(check_result::failed, format, list);
    va_end(list);
  }
  /// Marks the current check as skipped.
  [[gnu::format(printf, 2, 3)]] void skip(const char* format, ...) noexcept {
    std::va_list list;
    va_start(list, format);
    explain(check_result::skipped, format, list);
    va_end(list);
  }
  /// Whether the current check has not failed so far.
  bool holds() const noexcept { return count_ > 0 && checks_[count_ - 1].result == check_result::passed; }

  /// Prints a line for each check.
  void print(std::FILE* out) const {
    std::array<char, 320> line;
    for (const conformance_check& c : checks())
      std::fprintf(out, "%.*s", static_cast<int>(format(c, line)), line.data());
  }
  /// Writes the same text into `out`, as much as fits; returns the number of characters of the whole text.
  std::size_t format(std::span<char> out) const noexcept {
    std::size_t total = 0;
    std::array<char, 320> line;
    for (const conformance_check& c : checks()) {
      const std::size_t n = format(c, line);
      for (std::size_t i = 0; i < n; ++i)
        if (total + i < out.size()) out[total + i] = line[i];
      total += n;
    }
    return total;
  }

 private:
  static const char* word_for(check_result r) noexcept {
    switch (r) {
      case check_result::passed: return "ok     ";
      case check_result::failed: return "FAILED ";
      default: return "skipped";
    }
  }
  static std::size_t format(const conformance_check& c, std::span<char> out) noexcept {
    const int n = std::snprintf(out.data(), out.size(), "%s %-4.*s %.*s%s%s\n", word_for(c.result),
                                static_cast<int>(c.number.size()), c.number.data(), static_cast<int>(c.what.size()),
                                c.what.data(), c.why[0] != '\0' ? ": " : "", c.why.data());
    return n < 0 ? 0 : std::min(static_cast<std::size_t>(n), out.size() - 1);
  }
  void explain(check_result r, const char* format, std::va_list list) noexcept {
    if (!holds()) return;
    conformance_check& c = checks_[count_ - 1];
    c.result = r;
    std::vsnprintf(c.why.data(), c.why.size(), format, list);
  }

  std::array<conformance_check, capacity> checks_{};
  std::size_t count_ = 0;
};

}  // namespace tensorpull::testing
