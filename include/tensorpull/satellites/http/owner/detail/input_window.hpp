// Bytes of a connection that have come and were not read yet.
#pragma once

#include <tensorpull/core/spans.hpp>

#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

namespace tensorpull::detail {

/// At most `Bytes` at a time, in memory of its own. What is read goes from the front, what comes goes behind the rest.
template <std::size_t Bytes>
class input_window {
 public:
  std::size_t size() const noexcept { return end_ - begin_; }
  bool empty() const noexcept { return begin_ == end_; }
  bool full() const noexcept { return size() == Bytes; }
  /// What is there. Valid until room() is asked for.
  std::string_view text() const noexcept { return {reinterpret_cast<const char*>(bytes_.data()) + begin_, size()}; }
  void take(std::size_t n) noexcept { begin_ += n; }
  void clear() noexcept { begin_ = end_ = 0; }
  /// Where further bytes go; empty if it is full.
  std::span<std::byte> room() noexcept {
    if (begin_ > 0) {
      std::memmove(bytes_.data(), bytes_.data() + begin_, size());
      end_ -= std::exchange(begin_, 0);
    }
    return std::span(bytes_).subspan(end_);
  }
  void arrived(std::size_t n) noexcept { end_ += n; }
  /// Copies from the front, and takes what it copied. Returns how many bytes.
  std::size_t copy(scatter_list out) noexcept {
    std::size_t copied = 0;
    for (const auto& span : out) {
      const std::size_t n = span.size() < size() ? span.size() : size();
      if (n > 0) std::memcpy(span.data(), bytes_.data() + begin_, n);
      begin_ += n;
      copied += n;
    }
    return copied;
  }

 private:
  std::array<std::byte, Bytes> bytes_;
  std::size_t begin_ = 0, end_ = 0;
};

}  // namespace tensorpull::detail
