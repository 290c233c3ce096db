// Views of what is published in shared memory.
#pragma once

#include "listing.hpp"
#include "places.hpp"

#include "facade/facade.hpp"

namespace tensorpull::python {

/// A view and the memory that it is of, which Python sees as a buffer: its arrays keep this object alive.
class view {
 public:
  /// `writable`: for libraries whose tensors cannot be constant. Pages that are written become this view's own.
  view(std::string_view address, std::string_view ref, bool writable, std::uint64_t max_header_bytes,
       std::uint64_t max_tensors, const py::object& how)
      : writable_(writable) {
    const auto s = settings_of<pull_settings>(how);
    const facade::place at = place_or_url(address, nullptr);
    if (!at.is.viewed)
      raise(errc::bad_address, address, "only shm:path and shm:@name share their memory, so that it can be viewed");
    interruption stop(s.abort);
    auto opened = pull_with(ref, s, stop, {}, [&](const reference& from, const pull_options& options) {
      return at.kind->view(at, from, {writable, max_header_bytes, max_tensors}, options);
    });
    if (!opened) raise(opened.error(), true);
    seen_ = std::move(*opened);
  }
  py::buffer_info buffer() const {
    const auto memory = seen_.memory;
    const auto n = static_cast<py::ssize_t>(memory.size());
    return {const_cast<std::byte*>(memory.data()), 1, "B", 1, {n}, {py::ssize_t{1}}, !writable_};
  }
  /// (name, dtype, shape, where it begins in the buffer, bytes) each.
  py::list tensors() const {
    const source_view all = seen_.tensors;
    return described_tensors(*all.schema, [&](std::size_t i) { return all.address(i) - seen_.memory.data(); });
  }
  py::dict metadata() const { return to_python(seen_.tensors.schema->pairs()); }
  py::tuple how() const { return to_python(seen_.how); }
  bool owner_can_write() const noexcept { return seen_.owner_can_write; }

 private:
  facade::any_view seen_;
  bool writable_;
};

}  // namespace tensorpull::python
