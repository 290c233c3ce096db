// How fast bytes leave, from what they were when somebody looked before: an owner counts bytes and keeps no times.
#pragma once

#include <tensorpull/std/optional.hpp>

#include <cstdint>

namespace tensorpull::detail {

/// Two earlier looks at a count that grows.
class rate_sample {
 public:
  /// Bytes a second since a look of 1 to 35 s ago; nothing: nobody has looked. `key`: of what is counted; another one
  /// begins anew.
  optional<std::uint64_t> look(std::uint64_t key, std::uint64_t bytes, std::uint64_t now_ms) noexcept {
    if (!begun_ || key != key_ || bytes < newer_.bytes || now_ms - newer_.at_ms > most_ms) {
      begun_ = true;
      key_ = key;
      older_ = newer_ = {bytes, now_ms};
      return {};
    }
    // several that look at the same time do not shorten each other's
    if (now_ms - newer_.at_ms >= least_ms) older_ = newer_, newer_ = {bytes, now_ms};
    const std::uint64_t passed = now_ms - older_.at_ms;
    if (passed < 1000) return {};
    return static_cast<std::uint64_t>(static_cast<double>(bytes - older_.bytes) * 1000 / static_cast<double>(passed));
  }

 private:
  static constexpr std::uint64_t least_ms = 4000, most_ms = 30'000;
  struct count {
    std::uint64_t bytes = 0, at_ms = 0;
  };
  std::uint64_t key_ = 0;
  count older_{}, newer_{};
  bool begun_ = false;
};

}  // namespace tensorpull::detail
