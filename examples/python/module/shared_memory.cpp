// Links through shared memory (shm:), and views of what is published there.
#include "links.hpp"
#include "other_links.hpp"

#include <tensorpull/satellites/shared_memory/shared_memory.hpp>
#include <tensorpull/system/link_url.hpp>

namespace tensorpull::python {
namespace {

using shared_net = net<shared_memory_on_threads>;

/// A view and the memory that it is of, which Python sees as a buffer: its arrays keep this object alive.
class view {
 public:
  /// `writable`: for libraries whose tensors cannot be constant. Pages that are written become this view's own.
  view(std::string_view address, std::string_view ref, bool writable, std::uint64_t max_header_bytes,
       std::uint64_t max_tensors, const pull_settings& s)
      : seen_(nullptr, writable, view_limits{max_header_bytes, max_tensors}), writable_(writable) {
    const link_url at = link_of(address);
    if (at.scheme != link_scheme::shm_url)
      raise(errc::bad_address, address, "only shm:path and shm:@name share their memory, so that it can be viewed");
    interruption stop(s.abort);
    how_ = pull([&](const reference& from, const pull_options& o,
                    chunks) { return shared_memory_on_threads::view<shared_net::parts>(at.address, from, seen_, o); },
                ref, s, stop);
  }
  view(const view&) = delete;
  view& operator=(const view&) = delete;

  py::buffer_info buffer() const {
    const auto memory = seen_.memory();
    const auto n = static_cast<py::ssize_t>(memory.size());
    return {const_cast<std::byte*>(memory.data()), 1, "B", 1, {n}, {py::ssize_t{1}}, !writable_};
  }
  /// (name, dtype, shape, where it begins in the buffer, bytes) each.
  py::list tensors() const {
    const source_view all = seen_.tensors();
    py::list out;
    for (std::size_t i = 0; i < all.schema->tensor_count; ++i) {
      const tensor_entry& t = all.schema->tensors[i];
      py::tuple shape(t.rank);
      for (std::size_t k = 0; k < t.rank; ++k) shape[k] = t.shape[k];
      out.append(py::make_tuple(to_text(t.name), std::string(to_string(t.type)), shape,
                                all.address(i) - seen_.memory().data(), t.size_bytes()));
    }
    return out;
  }
  py::dict metadata() const { return to_python(seen_.tensors().schema->pairs()); }
  py::tuple how() const { return to_python(how_); }
  bool owner_can_write() const noexcept { return seen_.owner_can_write(); }

 private:
  viewed_tensors seen_;
  receipt how_;
  bool writable_;
};

}  // namespace

result<receipt> pull_shared_memory(std::string_view address, const reference& from, pull_target to,
                                   const pull_options& options, chunks cut) noexcept {
  return std::visit(
      [&](auto* target) {
        return net_into<shared_memory_on_threads, std::remove_pointer_t<decltype(target)>>::pull(address, from, *target,
                                                                                                 options, cut);
      },
      to);
}

std::shared_ptr<any_owner> open_shared_memory(std::string_view listen, const host_options& host) {
  return std::make_shared<owner_over<shared_memory_on_threads>>(
      value_or_raise(shared_net::downloader::open({.listen = listen, .host = host})));
}

made_session connect_shared_memory(std::string_view address, const connect_options& options) noexcept {
  return connect_over<shared_memory_on_threads>(address, options);
}
std::shared_ptr<any_listener> listen_shared_memory(std::string_view address) {
  return listener_at<shared_memory_on_threads>(address);
}

void bind_view(py::module_& m) {
  py::class_<view>(m, "View", py::buffer_protocol())
      .def(py::init<std::string_view, std::string_view, bool, std::uint64_t, std::uint64_t, const pull_settings&>())
      .def_buffer(&view::buffer)
      .def_property_readonly("tensors", &view::tensors)
      .def_property_readonly("metadata", &view::metadata)
      .def_property_readonly("receipt", &view::how)
      .def_property_readonly("owner_can_write", &view::owner_can_write);
}

}  // namespace tensorpull::python
