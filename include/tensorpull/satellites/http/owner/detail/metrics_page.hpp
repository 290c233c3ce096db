// The page of metrics on its way. It is written when it is sent, and again for what was not taken of it: it takes no
// buffer meanwhile.
#pragma once

#include <tensorpull/satellites/http/owner/http_metrics.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

namespace tensorpull::detail {

class metrics_page {
 public:
  bool open() const noexcept { return at_ < bytes_; }
  /// Returns its length; 0: it does not fit.
  std::size_t begin(const owner_totals& totals, const http_figures& figures) noexcept {
    totals_ = totals;
    figures_ = figures;
    at_ = 0;
    std::array<char, http_metrics_bytes> room;
    return bytes_ = write_http_metrics(totals_, figures_, room);
  }
  /// The rest, in `memory`.
  std::span<const std::byte> next(std::span<std::byte> memory) const noexcept {
    (void)write_http_metrics(totals_, figures_, {reinterpret_cast<char*>(memory.data()), memory.size()});
    return memory.subspan(at_, bytes_ - at_);
  }
  void taken(std::size_t n) noexcept { at_ += std::min(n, bytes_ - at_); }
  void end() noexcept { at_ = bytes_; }

 private:
  owner_totals totals_{};
  http_figures figures_{};
  std::size_t at_ = 0, bytes_ = 0;
};

}  // namespace tensorpull::detail
