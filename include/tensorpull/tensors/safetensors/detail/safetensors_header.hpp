// Reads the header of a safetensors file as a stream, from a file that may be anything: its bounds, its characters one
// after the other, the events of its JSON, and the tensors and metadata as they end.
//
// Decides what is accepted: what Python's safetensors 0.8 accepts and its specification allows, and as strict as the
// specification where that is stricter: one name means one thing, a tensor is an object, a dtype a text. Fields that
// the format does not know are read over, as there. The canonical text of an image that arrives from an owner has a
// reader of its own, image/header_reader.hpp.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/dtype.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/core/tensor_view.hpp>
#include <tensorpull/image/schema.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
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
/// Errors: bad_file (no room for the length, or for as much text as it says), does_not_fit (more text than the
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

/// Reads the text through a small buffer. Between begin() and end() it is a range of input iterators, which ends where
/// the file fails or where stop() was called.
template <class File>
class header_text {
 public:
  header_text(const File& file, const header_bounds& bounds) noexcept
      : file_(file), next_(8), end_(bounds.data_begin) {}
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

/// One tensor as a header describes it. Its size is that of its dtype and shape; [begin, end) need not lie in the file.
struct described_tensor {
  std::string_view name;
  dtype type = dtype::u8;
  std::span<const std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;
};

/// The events of nlohmann's JSON reader (its SAX interface): each says whether reading goes on. No recursion; the
/// memory is that of the tensor at hand. `Sink` has tensor(const described_tensor&) and metadata(key, value), both
/// giving result<void>. May throw bad_alloc.
template <class Sink>
class header_events {
 public:
  explicit header_events(Sink& sink) noexcept : sink_(sink) {}

  /// Whether the object that is the header has ended.
  bool ended() const noexcept { return at_ == place::end; }
  /// Why it was refused: the error of the sink or of a tensor; bad_file for everything else.
  const error& reason() const noexcept { return reason_; }

  bool null() { return ignored_value(); }
  bool boolean(bool) { return ignored_value(); }
  bool number_integer(std::int64_t) { return ignored_value(); }  // a negative number, or -0
  bool number_float(double, const std::string&) { return ignored_value(); }
  bool number_unsigned(std::uint64_t n) {
    if (at_ == place::extent) {
      if (shape_.size() == std::numeric_limits<std::uint16_t>::max()) return refuse(errc::unsupported_layout);
      return shape_.push_back(n), true;
    }
    if (at_ != place::offset) return ignored_value();
    if (offset_count_ == 2) return refuse(errc::bad_file);
    return offsets_[offset_count_++] = n, true;
  }
  bool string(std::string& text) {
    if (at_ == place::pair_value) {
      at_ = place::pair_key;
      return passed(sink_.metadata(key_, text));
    }
    if (at_ != place::dtype_value) return ignored_value();
    const auto type = dtype_from_string(text);
    if (!type) return refuse(errc::unsupported_dtype);
    type_ = *type;
    return at_ = place::field, true;
  }
  template <class Binary>
  bool binary(Binary&) {
    return refuse(errc::bad_file);
  }

  bool start_object(std::size_t) {
    switch (at_) {
      case place::start: return at_ = place::member, true;
      case place::metadata: return at_ = place::pair_key, true;
      case place::tensor: return at_ = place::field, true;
      default: return deeper();
    }
  }
  bool end_object() {
    switch (at_) {
      case place::member: return at_ = place::end, true;
      case place::pair_key: return at_ = place::member, true;
      case place::field: return end_tensor() && (at_ = place::member, true);
      default: return higher();
    }
  }
  bool start_array(std::size_t) {
    if (at_ == place::shape_value) return at_ = place::extent, true;
    if (at_ == place::offsets_value) return at_ = place::offset, true;
    return deeper();
  }
  bool end_array() {
    if (at_ == place::offset && offset_count_ != 2) return refuse(errc::bad_file);
    if (at_ == place::extent || at_ == place::offset) return at_ = place::field, true;
    return higher();
  }
  bool key(std::string& text) {
    switch (at_) {
      case place::member: return start_member(text);
      case place::pair_key: key_.swap(text); return at_ = place::pair_value, true;
      case place::field: return start_field(text);
      default: return at_ == place::ignored || refuse(errc::bad_file);
    }
  }
  template <class Exception>
  bool parse_error(std::size_t, const std::string&, const Exception&) {
    return refuse(errc::bad_file);
  }

 private:
  /// What comes next, or what it is in.
  enum class place : std::uint8_t {
    start,
    member,
    metadata,
    pair_key,
    pair_value,
    tensor,
    field,
    dtype_value,
    shape_value,
    extent,
    offsets_value,
    offset,
    ignored,
    end,
  };

  bool refuse(errc code) {
    reason_ = error{code};
    if (at_ != place::start && at_ != place::member) reason_.name = std::string_view(name_);
    return false;
  }
  bool passed(const result<void>& done) {
    if (!done) reason_ = done.error();
    return done.has_value();
  }

  bool start_member(std::string& text) {
    name_.swap(text);
    if (name_ != "__metadata__") {
      has_dtype_ = has_shape_ = has_offsets_ = false;
      return at_ = place::tensor, true;
    }
    at_ = place::metadata;
    return !std::exchange(has_metadata_, true) || refuse(errc::duplicate_name);
  }
  bool start_field(const std::string& text) {
    bool* const has = text == "dtype"          ? &has_dtype_
                      : text == "shape"        ? &has_shape_
                      : text == "data_offsets" ? &has_offsets_
                                               : nullptr;
    at_ = has == &has_dtype_   ? place::dtype_value
          : has == &has_shape_ ? place::shape_value
          : has != nullptr     ? place::offsets_value
                               : place::ignored;
    if (has == &has_shape_) shape_.clear();
    if (has == &has_offsets_) offset_count_ = 0;
    return has == nullptr || !std::exchange(*has, true) || refuse(errc::bad_file);
  }
  bool end_tensor() {
    if (!has_dtype_ || !has_shape_ || !has_offsets_) return refuse(errc::bad_file);
    const auto size = size_bytes(type_, shape_);
    if (!size) return refuse(size.error().code);
    if (offsets_[1] < offsets_[0] || offsets_[1] - offsets_[0] != *size) return refuse(errc::bad_file);
    return passed(sink_.tensor({name_, type_, shape_, offsets_[0], offsets_[1]}));
  }

  /// Within a field that the format does not know. The reference library reads 127 levels, of which the header and the
  /// tensor are two.
  bool ignored_value() {
    if (at_ != place::ignored) return refuse(errc::bad_file);
    if (depth_ == 0) at_ = place::field;
    return true;
  }
  bool deeper() { return at_ == place::ignored && ++depth_ <= 125 ? true : refuse(errc::bad_file); }
  bool higher() {
    if (at_ != place::ignored || depth_ == 0) return refuse(errc::bad_file);
    if (--depth_ == 0) at_ = place::field;
    return true;
  }

  Sink& sink_;
  place at_ = place::start;
  std::uint8_t offset_count_ = 0, depth_ = 0;
  bool has_metadata_ = false, has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  dtype type_ = dtype::u8;
  std::uint64_t offsets_[2] = {};
  std::vector<std::uint64_t> shape_;
  std::string name_, key_;
  error reason_{.code = errc::bad_file};
};

}  // namespace tensorpull::detail

namespace tensorpull {

/// Gives `sink` each tensor and each pair of metadata in the order of the text, and says where the data lies. `File`
/// has size() and read_at(offset, span) -> result<void>. `Sink` has tensor(const detail::described_tensor&) and
/// metadata(key, value), both giving result<void>; an error of either ends the reading. That names are unique and the
/// data has no hole, the caller checks: it needs all of them (safetensors_image does). Memory: 5 KiB of stack, however
/// the text is nested, and on the heap about four times its longest string. Never throws. Errors, `at` the byte of the
/// file that was reached and `name` the tensor, where it is about one: bad_file; duplicate_name
/// (`__metadata__`); unsupported_dtype; unsupported_layout (more than 65,535 dimensions); size_overflow; does_not_fit
/// (more text than the reference library reads); out_of_memory; those of read_at and of `sink`.
template <class File, class Sink>
[[nodiscard]] result<detail::header_bounds> read_safetensors_header(const File& file, Sink& sink) noexcept {
  const auto bounds = detail::read_header_bounds(file);
  if (!bounds) return bounds;
  detail::header_text<File> text(file, *bounds);
  // the JSON reader would skip a byte order mark and white space
  if (text.more() && text.current() != '{') return failure(errc::bad_file, 8);
  struct events : detail::header_events<Sink> {
    events(Sink& to, detail::header_text<File>& from) noexcept : detail::header_events<Sink>(to), from_(from) {}
    bool end_object() {
      const bool go_on = detail::header_events<Sink>::end_object();
      if (this->ended()) from_.stop();  // what follows is padding, which the JSON reader would collect
      return go_on;
    }
    detail::header_text<File>& from_;
  } reader(sink, text);
  bool accepted = false;
#if defined(__cpp_exceptions)
  try {
    accepted = nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  } catch (...) {
    return failure(errc::out_of_memory);
  }
#else
  accepted = nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
#endif
  const std::uint64_t reached = text.position();
  if (accepted && text.only_padding_left()) return bounds;
  if (!text.read()) return failure(text.read().error());
  return failure(accepted ? errc::bad_file : reader.reason().code, reached,
                 accepted ? error_name() : reader.reason().name, reader.reason().system);
}

}  // namespace tensorpull
