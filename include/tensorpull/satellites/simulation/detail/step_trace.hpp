// The trace of a simulation: a hash of all steps by which two runs can be compared and, if there is a file, their text.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string_view>

namespace tensorpull::testing::detail {

/// Steps are not kept. For their text, run the same seed again with a file.
class step_trace {
 public:
  explicit step_trace(std::FILE* out = nullptr) noexcept : out_(out) {}

  /// Adds a step: at `now_us`, `what` happened to number `who`; `a` and `b` are its details.
  void note(std::uint64_t now_us, std::string_view what, std::uint64_t who, std::uint64_t a = 0,
            std::uint64_t b = 0) noexcept {
    for (const char c : what) mix(static_cast<unsigned char>(c));
    for (const std::uint64_t v : {now_us, who, a, b}) mix(v);
    ++steps_;
    if (out_ != nullptr)
      std::fprintf(out_, "%10llu us  %-28.*s %4llu  %llu %llx\n", static_cast<unsigned long long>(now_us),
                   static_cast<int>(what.size()), what.data(), static_cast<unsigned long long>(who),
                   static_cast<unsigned long long>(a), static_cast<unsigned long long>(b));
  }

  std::uint64_t hash() const noexcept { return hash_; }
  std::uint64_t steps() const noexcept { return steps_; }

 private:
  void mix(std::uint64_t v) noexcept {
    hash_ = (hash_ ^ v) * 0x9e3779b97f4a7c15u;
    hash_ ^= hash_ >> 29;
  }

  std::FILE* out_;
  std::uint64_t hash_ = 0xcbf29ce484222325u, steps_ = 0;
};

}  // namespace tensorpull::testing::detail
