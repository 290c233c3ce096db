// Reads the header of a safetensors file as a stream, from a file that may be anything: its bounds, its characters one
// after the other, and the tensors and metadata as they end. image/detail/header_parser.hpp decides what is accepted.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/dtype.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/core/tensor_view.hpp>
#include <tensorpull/image/detail/header_parser.hpp>
#include <tensorpull/image/schema.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensorpull::detail {

/// Where the parts of a file are: 8 bytes of length, the text, the data.
struct header_bounds {
  std::uint64_t text_bytes = 0;
  std::uint64_t data_begin = 0;
  std::uint64_t data_bytes = 0;
};

/// `File` has size() and read_at(offset, span) -> result<void>, such as positioned_file.
/// Errors: bad_file (no room for the length, or for as much text as it claims), does_not_fit (more text than the
/// reference library reads), and those of read_at. Only subtraction, so no length wraps.
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

/// Reads the text through a small buffer, to its end or to where the file fails.
template <class File>
class header_text {
 public:
  header_text(const File& file, const header_bounds& bounds) noexcept
      : file_(file), next_(8), end_(bounds.data_begin) {}
  header_text(const header_text&) = delete;
  header_text& operator=(const header_text&) = delete;

  bool more() noexcept { return at_ != filled_ || fill(); }
  /// Requires more().
  char take() noexcept { return buffer_[at_++]; }
  /// The next byte of the file.
  std::uint64_t position() const noexcept { return next_ - (filled_ - at_); }
  /// Why the file could not be read, if that is how the text ended.
  const result<void>& read() const noexcept { return read_; }

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
  result<void> read_{};
  char buffer_[4096];
};

/// One tensor as a header describes it. Its size is that of its dtype and shape; [begin, end) need not lie in the file.
struct described_tensor {
  std::string_view name;
  dtype type = dtype::u8;
  std::span<const std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;
};

/// Puts the tensors together. `Sink` has tensor(const described_tensor&) and metadata(key, value), both giving
/// result<void>. The memory is that of the tensor or the pair at hand. May throw bad_alloc.
template <class Sink>
class header_members {
 public:
  explicit header_members(Sink& sink) noexcept : sink_(sink) {}

  /// Of the tensor at hand, or `__metadata__`.
  std::string_view current() const noexcept { return name_; }

  void put(char c) { text_.push_back(c); }
  result<void> metadata() { return name(); }
  result<void> pair_key() {
    key_.swap(text_);
    text_.clear();
    return {};
  }
  result<void> pair_value() {
    const auto told = sink_.metadata(key_, text_);
    text_.clear();
    return told;
  }
  result<void> name() {
    name_.swap(text_);
    text_.clear();
    shape_.clear();
    return {};
  }
  result<void> type(dtype of) noexcept {
    type_ = of;
    return {};
  }
  result<void> extent(std::uint64_t n) {
    if (shape_.size() == std::numeric_limits<std::uint16_t>::max()) return failure(errc::unsupported_layout);
    shape_.push_back(n);
    return {};
  }
  result<void> tensor(std::uint64_t begin, std::uint64_t end) {
    const auto size = size_bytes(type_, shape_);
    if (!size) return failure(size.error().code);
    if (end < begin || end - begin != *size) return failure(errc::misplaced_tensor);
    return sink_.tensor({name_, type_, shape_, begin, end});
  }

 private:
  Sink& sink_;
  dtype type_ = dtype::u8;
  std::vector<std::uint64_t> shape_;
  std::string text_, name_, key_;
};

}  // namespace tensorpull::detail

namespace tensorpull {

/// Gives `sink` each tensor and each pair of metadata in the order of the text, and returns where the data lies. `File`
/// has size() and read_at(offset, span) -> result<void>. `Sink` has tensor(const detail::described_tensor&) and
/// metadata(key, value), both giving result<void>; an error of either ends the reading. That names are unique and the
/// data has no hole, the caller checks: it needs all of them (safetensors_image does). Memory: 5 KiB of stack, however
/// the text is nested, and on the heap about four times its longest string. Never throws. Errors, `at` the byte of the
/// file that was reached and `name` the tensor, if it is about one: bad_file; misplaced_tensor; duplicate_name
/// (`__metadata__`); unsupported_dtype; unsupported_layout (more than 65,535 dimensions); size_overflow; does_not_fit
/// (more text than the reference library reads); out_of_memory; those of read_at and of `sink`.
template <class File, class Sink>
[[nodiscard]] result<detail::header_bounds> read_safetensors_header(const File& file, Sink& sink) noexcept {
  const auto bounds = detail::read_header_bounds(file);
  if (!bounds) return bounds;
  detail::header_text<File> text(file, *bounds);
  detail::header_parser<detail::header_spelling::any> parser;
  detail::header_members<Sink> members(sink);
  const auto read = [&]() -> result<void> {
    while (text.more())
      if (const auto taken = parser.take(text.take(), members); !taken) return taken;
    if (!text.read()) return text.read();
    return parser.complete() ? result<void>{} : failure(errc::bad_file);
  };
  result<void> done{};
#if defined(__cpp_exceptions)
  try {
    done = read();
  } catch (const std::bad_alloc&) {
    return failure(errc::out_of_memory);
  }
#else
  done = read();
#endif
  if (done) return bounds;
  if (!text.read()) return failure(text.read().error());
  const error& why = done.error();
  return failure(why.code, text.position(), parser.within_member() ? error_name(members.current()) : why.name,
                 why.system);
}

}  // namespace tensorpull
