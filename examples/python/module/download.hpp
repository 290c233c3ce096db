// A pull into tensors that exist, or into tensors that Python makes when the owner has described them.
#pragma once

#include "named_landing.hpp"
#include "pulling.hpp"
#include "slices.hpp"
#include "tensor_table.hpp"

#include <tensorpull/consumers/any_schema/new_model.hpp>
#include <tensorpull/system/pages.hpp>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

namespace tensorpull::python {

/// `make(name, dtype, shape)` returns (address, bytes) of memory that stays valid until `clear()`. What either raises
/// is the caller's whose call it was.
class python_allocator {
 public:
  python_allocator(py::object make, py::object clear, interruption* caller = nullptr) noexcept
      : make_(std::move(make)), clear_(std::move(clear)), stop_(caller) {}
  /// From now on exceptions are this call's.
  void tell(interruption* caller) noexcept { stop_ = caller; }

  result<std::byte*> allocate(const tensor_entry& entry) noexcept {
    const interpreter_lock lock;
    std::byte* memory = nullptr;
    const bool made = stop_->guard([&] {
      const py::tuple where = make_(to_text(entry.name), std::string(to_string(entry.type)), shape_of(entry));
      if (where[1].cast<std::uint64_t>() != entry.size_bytes())
        throw py::value_error("the tensor that was made has another size");
      memory = reinterpret_cast<std::byte*>(where[0].cast<std::uintptr_t>());
    });
    if (!made) return failure(errc::out_of_memory, 0, entry.name);
    // torch has not done so, and first touches of small pages take longer than the transfer
    detail::advise_huge_pages(memory, entry.size_bytes());
    return memory;
  }
  void clear() noexcept {
    const interpreter_lock lock;
    stop_->guard([&] { clear_(); });
  }

 private:
  py::object make_, clear_;
  interruption* stop_;
};

/// Lands, and asks `agrees()` of Python's whether what has arrived is right, as far as its digest does not say so.
/// None: nobody is asked. If it is not, finish() fails with digest_mismatch, and the owner forgets that it was asked.
class asking_landing : public named_landing {
 public:
  /// Borrows the last two.
  asking_landing(const destination_view& to, name_ties ties, std::uint64_t most_header_bytes, const py::object& agrees,
                 interruption& stop) noexcept
      : named_landing(to, std::move(ties), most_header_bytes), agrees_(&agrees), stop_(&stop) {}

  result<void> finish(const receipt& r) noexcept {
    if (const auto done = named_landing::finish(r); !done) return done;
    const auto right = ask(*agrees_, *stop_);
    forgotten_ = !right && right.error() == errc::digest_mismatch;
    return right;
  }
  bool looked() const noexcept { return forgotten_; }

 private:
  const py::object* agrees_;
  interruption* stop_;
  bool forgotten_ = false;
};

/// Of which tensors which indices are wanted, and of which dimension, as Python says it.
using named_slices = std::vector<std::tuple<std::string, std::uint64_t, std::uint64_t, std::uint16_t>>;

/// Lands in the tensors that are described. `subset`: they are only some of those that are published; `slices`: of
/// these only a part. `ties`: further names of tensors, which the owner has to have tied as they are here. Returns the
/// receipt, and the metadata as far as `max_header_bytes` lets it be kept; of a subset there is none.
inline py::tuple download_into(source& from, std::string_view ref, const py::sequence& described, bool subset,
                               name_ties ties, std::uint64_t max_header_bytes, const py::object& how,
                               const named_slices& slices) {
  const auto s = settings_of<pull_settings>(how);
  std::vector<tensor_slice> parts;
  for (const auto& [name, begin, end, dimension] : slices) parts.push_back({name, begin, end, dimension});
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  const tensor_table table(described);
  interruption stop(s.abort);
  download_cursor* const cursor = s.from.is_none() ? nullptr : s.from.cast<download_cursor*>();
  const auto known = cursor != nullptr ? cursor->metadata : std::vector<std::pair<std::string, std::string>>();
  landing_table image(table, stop, known);
  asking_landing to(image.destination(), std::move(ties), max_header_bytes, s.agrees, stop);
  facade::consumer_for as(to);
  const auto done = [&] {
    const auto keep = [&to](download_cursor* c) {  // whatever happens
      c->metadata.clear();
      for (const metadata_entry& pair : to.metadata()) c->metadata.emplace_back(pair.key, pair.value);
    };
    const std::unique_ptr<download_cursor, decltype(keep)> at_the_end(cursor, keep);
    return try_pull(from, as, ref, s, stop, {.part = subset, .slices = parts});
  }();
  if (!done) raise(done.error(), true);
  return py::make_tuple(to_python(*done, as), to_python(to.metadata()));
}
/// Lands in tensors that are made. Returns the receipt and the metadata.
inline py::tuple download_new(source& from, std::string_view ref, const py::object& make, const py::object& clear,
                              std::uint64_t max_bytes, std::uint64_t max_header_bytes, std::uint64_t max_tensors,
                              const py::object& how) {
  const auto s = settings_of<pull_settings>(how);
  interruption stop(s.abort);
  new_model to(python_allocator(make, clear, &stop), new_model_limits{max_bytes, max_header_bytes, max_tensors});
  facade::consumer_for as(to);
  const auto got = try_pull(from, as, ref, s, stop,
                            {.described = [&] { return to.made().tensor_count != 0 ? &to.made() : nullptr; }});
  if (!got)
    raise(
        got.error(), true,
        got.error() == errc::too_large ? above(as.described(), {max_bytes, max_header_bytes, max_tensors}, true) : "");
  return py::make_tuple(to_python(*got, as), to_python(to.made().pairs()));
}

}  // namespace tensorpull::python
