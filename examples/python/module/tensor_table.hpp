// Makes views of tensors that the Python half describes. Does not check them: the image does.
#pragma once

#include "errors.hpp"

#include <tensorpull/image/dynamic.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tensorpull::python {

inline py::dict to_python(std::span<const metadata_entry> pairs) {
  py::dict made;
  for (const metadata_entry& pair : pairs) made[to_text(pair.key)] = to_text(pair.value);
  return made;
}

inline py::tuple shape_of(const tensor_entry& t) {
  py::tuple shape(t.rank);
  for (std::size_t i = 0; i < t.rank; ++i) shape[i] = t.shape[i];
  return shape;
}

/// One tensor, as Python describes it. `side`: what copies it a slice at a time, if it is on a device; `space`: which
/// device, 0 is the CPU.
struct tensor_row {
  std::string name;
  dtype type{};
  std::vector<std::uint64_t> shape;
  std::vector<std::int64_t> strides;
  std::uintptr_t address = 0;
  std::uint8_t swap = 0;
  py::object side = py::none();
  std::uint64_t space = 0;
};

/// One tensor is (name, dtype, shape, strides or None, address, bytes to swap): str, str, tuple, tuple, int, int. One
/// on a device has two elements more: what copies it, and the number of its device; its address is only compared.
class tensor_table {
 public:
  explicit tensor_table(const py::sequence& described) {
    rows_.reserve(described.size());
    for (const py::handle item : described) {
      const auto t = py::reinterpret_borrow<py::tuple>(item);
      tensor_row r;
      r.name = t[0].cast<std::string>();
      const auto type = dtype_from_string(t[1].cast<std::string>());
      if (!type) raise(errc::unsupported_dtype, r.name);
      r.type = *type;
      r.shape = numbers<std::uint64_t>(t[2]);
      if (!t[3].is_none()) r.strides = numbers<std::int64_t>(t[3]);
      r.address = t[4].cast<std::uintptr_t>();
      r.swap = t[5].cast<std::uint8_t>();
      if (t.size() > 6) {
        r.side = t[6];
        r.space = t[7].cast<std::uint64_t>();
      }
      rows_.push_back(std::move(r));
    }
  }

  const std::vector<tensor_row>& rows() const noexcept { return rows_; }
  /// For landing: the tensors must be contiguous in the CPU's memory and must not share any.
  dynamic_image to_write() const {
    return value_or_raise(dynamic_image::make(views<mutable_tensor_view, std::byte*>()));
  }
  /// The same tensors in the CPU's memory, which no image has looked at yet.
  template <class View, class Address>
  std::vector<View> views() const {
    std::vector<View> all;
    for (const tensor_row& r : rows_) {
      if (r.swap != 0 || !r.side.is_none()) raise(errc::unsupported_layout, r.name);
      all.push_back({r.name, r.type, r.shape, reinterpret_cast<Address>(r.address), r.strides});
    }
    return all;
  }
  /// The same of a sequence that may be None.
  static std::optional<dynamic_image> to_write(const py::object& described) {
    if (described.is_none()) return std::nullopt;
    return tensor_table(py::reinterpret_borrow<py::sequence>(described)).to_write();
  }
  std::vector<std::string_view> names() const {
    std::vector<std::string_view> all;
    for (const tensor_row& r : rows_) all.push_back(r.name);
    return all;
  }

 private:
  template <class T>
  static std::vector<T> numbers(const py::object& tuple) {
    std::vector<T> all;
    for (const py::handle n : py::reinterpret_borrow<py::tuple>(tuple)) all.push_back(n.cast<T>());
    return all;
  }

  std::vector<tensor_row> rows_;
};

}  // namespace tensorpull::python
