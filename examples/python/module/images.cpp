// Images read and written by byte ranges, for programs that bring their own transport.
#include "download.hpp"
#include "listing.hpp"
#include "parts.hpp"
#include "slices.hpp"

#include <tensorpull/consumers/any_schema/image_landing.hpp>
#include <tensorpull/consumers/land.hpp>
#include <tensorpull/image/read_range.hpp>
#include <tensorpull/integrity/tensor_digests.hpp>
#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>

#include <pybind11/stl.h>

#include <cstring>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace tensorpull::python {
namespace {

/// Of a whole header: the bytes of the image that it describes.
std::uint64_t image_bytes(std::string_view header) {
  const auto text = std::as_bytes(std::span(header));
  header_reader reader(default_limits::tensors);
  if (const auto ok = reader.take(text); !ok) raise(ok.error());
  std::vector<tensor_entry> entries;
  std::vector<std::uint64_t> extents;
  std::vector<metadata_entry> pairs;
  if (!reader.complete()) raise(errc::bad_frame);
  reader.entries(entries, extents, pairs);
  for (std::size_t i = 1; i < entries.size(); ++i)
    if (!image_order(entries[i - 1].type, entries[i - 1].name, entries[i].type, entries[i].name))
      raise(errc::bad_frame, entries[i].name);
  const image_schema schema = value_or_raise(arrange(entries, {}, pairs));
  std::vector<std::byte> own(header.size());
  if (schema.header_bytes != header.size() || write_header(schema, 0, own) != own.size() ||
      std::memcmp(own.data(), text.data(), own.size()) != 0)
    raise(errc::bad_frame);
  return schema.image_bytes;
}
/// Of a tensor in an image.
std::uint64_t tensor_bytes(const std::string& type, const std::vector<std::uint64_t>& shape) {
  const auto known = dtype_from_string(type);
  if (!known) raise(errc::unsupported_dtype, type);
  return value_or_raise(size_bytes(*known, shape));
}

/// Calls f(stop) without the interpreter's lock: Ctrl-C is heard meanwhile, and `abort`, which is None or a callable,
/// and exceptions of `devices` are this call's. Raises.
template <class F>
void with_devices(const device_reader& devices, py::object abort, F f) {
  interruption stop{std::move(abort)};
  value_or_raise(stop.run([&] { return devices.copies()->within(stop, [&] { return f(stop); }); }));
}
/// The digest of each tensor's bytes alone, as an image has them and in its order: (name, XXH3-64). Cost: one pass over
/// the bytes.
py::list tensor_digests(const py::sequence& tensors, py::object abort) {
  device_reader devices;
  const dynamic_image image = devices.image_of(tensor_table(tensors), {});
  std::vector<std::uint64_t> digests;
  with_devices(devices, std::move(abort), [&](interruption& stop) -> result<void> {
    for (std::size_t i = 0; i < image.schema().tensor_count; ++i) {
      const auto is = tensor_digest_of<xxhash_digest, 16 * 1024>(image.source(), i, interruption_token{&stop});
      if (!is) return failure(is.error());
      digests.push_back(*is);
    }
    return {};
  });
  py::list out;
  for (std::size_t i = 0; i < digests.size(); ++i)
    out.append(py::make_tuple(to_text(image.schema().tensors[i].name), digests[i]));
  return out;
}

/// `stop`: nullptr, or what may end it in the middle.
result<void> copy_image(const source_view& from, const destination_view& to, interruption* stop) noexcept {
  const image_schema &s = *from.schema, &into = *to.schema;
  if (s.fingerprint != into.fingerprint || s.image_bytes != into.image_bytes) return failure(errc::schema_mismatch);
  land landing(to);
  if (const auto ok = landing.begin({.image_bytes = s.image_bytes, .data_start = s.header_bytes}); !ok) return ok;
  std::array<std::byte, 256 * 1024> some;
  for (std::uint64_t at = s.header_bytes; at < s.image_bytes;) {
    if (stop != nullptr && stop->look()) return failure(errc::cancelled);
    const std::span piece(some.data(),
                          static_cast<std::size_t>(std::min<std::uint64_t>(some.size(), s.image_bytes - at)));
    if (const auto read = detail::read_range(from, at, piece); !read) return read;
    if (const auto landed = detail::land_bytes(landing, at, piece); !landed) return landed;
    at += piece.size();
  }
  return {};
}

/// Copies tensors into others of the same names, dtypes and shapes, wherever both are. `whole`: Ctrl-C is heard
/// afterwards.
void copy_tensors(const py::sequence& from, const py::sequence& to, bool whole) {
  device_reader devices;
  const dynamic_image image = devices.image_of(tensor_table(from), {});
  const tensor_table table(to);
  interruption stop{py::none()};
  landing_table into(table, stop);
  with_devices(devices, py::none(), [&](interruption& caller) {
    return copy_image(image.source(), into.destination(), whole ? nullptr : &caller);
  });
  stop.rethrow();
}

/// Raises if these tensors cannot be landed in.
void check_landing(const py::sequence& to) {
  interruption stop{py::none()};
  const tensor_table table(to);
  const landing_table into(table, stop);
}

/// An image that is read.
class image_reader {
 public:
  image_reader(const py::sequence& tensors, const std::vector<std::pair<std::string, std::string>>& metadata,
               py::object keep, py::object abort)
      : image_(devices_.image_of(tensor_table(tensors), metadata)), keep_(std::move(keep)) {
    version_ = version_of(image_.source(), *devices_.copies(), std::move(abort));
  }
  std::uint64_t bytes() const noexcept { return image_.schema().image_bytes; }
  std::uint64_t header_bytes() const noexcept { return image_.schema().header_bytes; }
  std::uint64_t version() const noexcept { return version_; }
  std::uint64_t fingerprint() const noexcept { return image_.schema().fingerprint; }
  py::list tensors() const { return described_tensors(image_.schema()); }

  py::bytes read(std::uint64_t offset, std::uint64_t length) const {
    const std::uint64_t n = within(offset, length);
    auto made = py::reinterpret_steal<py::bytes>(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(n)));
    if (!made) throw py::error_already_set();
    copy(offset, {reinterpret_cast<std::byte*>(PyBytes_AS_STRING(made.ptr())), static_cast<std::size_t>(n)});
    return made;
  }
  std::uint64_t read_into(std::uint64_t offset, const py::buffer& to) const {
    const py::buffer_info about = contiguous(to, true);
    const std::uint64_t n = within(offset, static_cast<std::uint64_t>(about.size * about.itemsize));
    copy(offset, {static_cast<std::byte*>(about.ptr), static_cast<std::size_t>(n)});
    return n;
  }

  static py::buffer_info contiguous(const py::buffer& b, bool writable) {
    py::buffer_info about = b.request(writable);
    if (about.format.find('O') != about.format.npos)
      throw py::type_error("the buffer has bytes, and no objects of Python's");
    py::ssize_t expected = about.itemsize;
    for (auto i = about.ndim; i-- > 0;) {
      const auto k = static_cast<std::size_t>(i);
      if (about.shape[k] > 1 && about.strides[k] != expected) throw py::value_error("the buffer is contiguous");
      expected *= about.shape[k];
    }
    return about;
  }

 private:
  std::uint64_t within(std::uint64_t offset, std::uint64_t length) const {
    if (offset > bytes()) raise({errc::out_of_range, 0, bytes(), {}});
    return std::min(length, bytes() - offset);
  }
  void copy(std::uint64_t offset, std::span<std::byte> out) const {
    value_or_raise(without_lock([&] { return detail::read_range(image_.source(), offset, out); }));
  }

  device_reader devices_;
  dynamic_image image_;
  py::object keep_;
  std::uint64_t version_ = 0;
};

/// An image that is written.
class range_landing {
  /// One thread at a time, without the interpreter's lock: making tensors takes that. Raises what Python's code has
  /// raised in this call, and no other. That code may be a signal's handler, which may look and no more.
  template <class F>
  auto alone(F f) {
    interruption thrown{py::none()};
    return thrown.run([&] {
      const std::lock_guard mine(mutex_);
      if (changes_) throw std::runtime_error("this thread is within a call of the landing, which has to end first");
      changes_ = true;
      to_.allocator().tell(&thrown);
      auto made = f(interruption_token{&thrown});
      changes_ = false;
      return made;
    });
  }
  /// What the landing says, to one thread at a time.
  template <class F>
  auto said(F f) const {
    return without_lock([&] {
      const std::lock_guard mine(mutex_);
      return f();
    });
  }

 public:
  range_landing(std::uint64_t image_bytes, py::object make, py::object clear, std::uint64_t max_bytes,
                std::uint64_t max_header_bytes, std::uint64_t max_tensors)
      : to_(python_allocator(std::move(make), std::move(clear)), image_bytes,
            new_model_limits{max_bytes, max_header_bytes, max_tensors}) {}

  void write(std::uint64_t offset, const py::buffer& from) {
    const py::buffer_info about = image_reader::contiguous(from, false);
    const std::span bytes(static_cast<const std::byte*>(about.ptr),
                          static_cast<std::size_t>(about.size * about.itemsize));
    told(alone([&](const interruption_token&) { return to_.write(offset, bytes); }));
  }
  std::uint64_t finish(std::uint64_t version) {
    const auto mine = alone([&](const interruption_token& stop) { return to_.finish<xxhash_digest>(version, stop); });
    told(mine);
    return *mine;
  }
  std::uint64_t written() const {
    return said([&] { return to_.written(); });
  }
  std::uint64_t first_missing() const {
    return said([&] { return to_.first_missing(); });
  }
  std::uint64_t header_left() const {
    return said([&] { return to_.header_left(); });
  }
  bool over() const {
    return said([&] { return to_.over(); });
  }
  py::dict metadata() {
    py::dict out;
    alone_with_python([&] { out = to_python(to_.made().pairs()); });
    return out;
  }

 private:
  template <class F>
  void alone_with_python(F f) {
    const auto mine = without_lock([&] { return std::unique_lock(mutex_); });
    f();
  }
  template <class T>
  static void told(const result<T>& how) {
    if (how) return;
    const error& why = how.error();
    if (why.code == errc::bad_request) raise(why, false, "these bytes of the image were written before");
    if (why.code == errc::invalid_argument) raise(why, false, "the landing has ended");
    raise(why);
  }

  mutable std::recursive_mutex mutex_;
  bool changes_ = false;  ///< a call that changes it is under way
  image_landing<python_allocator> to_;
};

}  // namespace

void bind_images(py::module_& m) {
  m.def("image_bytes", [](const py::bytes& header) { return image_bytes(std::string_view(header)); });
  m.def("tensor_bytes", &tensor_bytes);
  m.def("copy_tensors", &copy_tensors, py::arg("old"), py::arg("new"), py::arg("whole") = false);
  m.def("check_landing", &check_landing);
  m.def("tensor_digests", &tensor_digests, py::arg("tensors"), py::arg("abort") = py::none());
  m.def("fingerprint", [](const py::sequence& tensors) {
    const device_reader devices;
    return devices.image_of(tensor_table(tensors), {}).schema().fingerprint;
  });
  py::class_<image_reader>(m, "ImageReader")
      .def(py::init<const py::sequence&, const std::vector<std::pair<std::string, std::string>>&, py::object,
                    py::object>(),
           py::arg("tensors"), py::arg("metadata"), py::arg("keep"), py::arg("abort") = py::none())
      .def_property_readonly("bytes", &image_reader::bytes)
      .def_property_readonly("header_bytes", &image_reader::header_bytes)
      .def_property_readonly("version", &image_reader::version)
      .def_property_readonly("fingerprint", &image_reader::fingerprint)
      .def_property_readonly("tensors", &image_reader::tensors)
      .def("read", &image_reader::read)
      .def("read_into", &image_reader::read_into);
  py::class_<range_landing>(m, "RangeLanding")
      .def(py::init<std::uint64_t, py::object, py::object, std::uint64_t, std::uint64_t, std::uint64_t>())
      .def("write", &range_landing::write)
      .def("finish", &range_landing::finish)
      .def_property_readonly("written", &range_landing::written)
      .def_property_readonly("first_missing", &range_landing::first_missing)
      .def_property_readonly("header_left", &range_landing::header_left)
      .def_property_readonly("over", &range_landing::over)
      .def_property_readonly("metadata", &range_landing::metadata);
}

}  // namespace tensorpull::python
