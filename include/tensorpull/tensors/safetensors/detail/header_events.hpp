// What the JSON of a safetensors header may say. Decides which event may follow which, and gives out tensors and metadata as they end.
//
// As strict as the reference library, and as its specification where that is stricter: one name means one thing, a tensor is an
// object, a dtype a text. Fields that the format does not know are read over, as there.
#pragma once

#include <tensorpull/core/dtype.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/core/tensor_view.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensorpull::detail {

/// One tensor as a header describes it. Its size is that of its dtype and shape; [begin, end) need not lie in the file.
struct described_tensor {
  std::string_view name;
  dtype type = dtype::u8;
  std::span<const std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;
};

/// The events of nlohmann's JSON reader (its SAX interface): each says whether reading goes on. No recursion; the memory is that of the
/// tensor at hand. `Sink` has tensor(const described_tensor&) and metadata(key, value), both giving result<void>. May throw bad_alloc.
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
    start, member, metadata, pair_key, pair_value, tensor, field, dtype_value, shape_value, extent, offsets_value, offset, ignored, end,
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
    bool* const has = text == "dtype" ? &has_dtype_ : text == "shape" ? &has_shape_ : text == "data_offsets" ? &has_offsets_ : nullptr;
    at_ = has == &has_dtype_ ? place::dtype_value : has == &has_shape_ ? place::shape_value : has != nullptr ? place::offsets_value : place::ignored;
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

  /// Within a field that the format does not know. The reference library reads 127 levels, of which the header and the tensor are two.
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
