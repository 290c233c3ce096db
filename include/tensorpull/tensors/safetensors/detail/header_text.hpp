// The text of a safetensors header as characters, one after the other, from a file that may be anything. Decides its bounds.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/image/schema.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>

namespace tensorpull::detail {

/// Where the parts of a file are: 8 bytes of length, the text, the data.
struct header_bounds {
  std::uint64_t text_bytes = 0;
  std::uint64_t data_begin = 0;
  std::uint64_t data_bytes = 0;
};

/// `File` has size() and read_at(offset, span) -> result<void>, such as positioned_file.
/// Errors: bad_file (no room for the length, or for as much text as it says), does_not_fit (more text than the reference library
/// reads), and those of read_at. Only subtraction, so no length wraps.
template <class File>
result<header_bounds> read_header_bounds(const File& file) noexcept {
  std::byte length[8];
  if (file.size() < sizeof length) return failure(errc::bad_file, file.size());
  if (const auto read = file.read_at(0, length); !read) return failure(read.error());
  const std::uint64_t text_bytes = load_le64(length);
  if (text_bytes > max_header_text_bytes) return failure(errc::does_not_fit, text_bytes);
  if (text_bytes > file.size() - sizeof length) return failure(errc::bad_file, file.size());
  return header_bounds{text_bytes, 8 + text_bytes, file.size() - 8 - text_bytes};
}

/// Reads the text through a small buffer. Between begin() and end() it is a range of input iterators, which ends where the file
/// fails or where stop() was called.
template <class File>
class header_text {
 public:
  header_text(const File& file, const header_bounds& bounds) noexcept : file_(file), next_(8), end_(bounds.data_begin) {}
  header_text(const header_text&) = delete;
  header_text& operator=(const header_text&) = delete;

  bool more() noexcept { return !stopped_ && (at_ != filled_ || fill()); }
  /// Requires more().
  char current() const noexcept { return buffer_[at_]; }
  void advance() noexcept { ++at_; }

  /// What follows is not given out.
  void stop() noexcept { stopped_ = true; }
  /// Whether what is left is the padding that the format allows: spaces. Ends the text.
  bool only_padding_left() noexcept {
    for (stopped_ = false; more(); advance())
      if (current() != ' ') return false;
    return read_.has_value();
  }
  /// The byte of the file that comes next.
  std::uint64_t position() const noexcept { return next_ - (filled_ - at_); }
  /// Why the file could not be read, if that is how the text ended.
  const result<void>& read() const noexcept { return read_; }

  class iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char*;
    using reference = char;

    iterator() = default;
    explicit iterator(header_text* text) noexcept : text_(text) {}
    char operator*() const noexcept { return text_->current(); }
    iterator& operator++() noexcept { return text_->advance(), *this; }
    void operator++(int) noexcept { text_->advance(); }
    /// Only a comparison with the end means anything.
    friend bool operator==(const iterator& a, const iterator& b) noexcept { return a.ended() == b.ended(); }

   private:
    bool ended() const noexcept { return text_ == nullptr || !text_->more(); }
    header_text* text_ = nullptr;
  };
  iterator begin() noexcept { return iterator(this); }
  iterator end() noexcept { return {}; }

 private:
  bool fill() noexcept {
    if (next_ == end_ || !read_) return false;
    const std::size_t n = smaller(end_ - next_, sizeof buffer_);
    read_ = file_.read_at(next_, std::as_writable_bytes(std::span(buffer_).first(n)));
    if (!read_) return false;
    next_ += n;
    at_ = 0;
    filled_ = n;
    return true;
  }

  const File& file_;
  std::uint64_t next_, end_;
  std::size_t at_ = 0, filled_ = 0;
  bool stopped_ = false;
  result<void> read_{};
  char buffer_[4096];
};

}  // namespace tensorpull::detail
