// A pull into tensors that exist, or into tensors that Python makes when the owner has described them.
#pragma once

#include "named_landing.hpp"
#include "network.hpp"
#include "slices.hpp"
#include "tensor_table.hpp"

#include <tensorpull/consumers/any_schema/new_model.hpp>
#include <tensorpull/system/pages.hpp>

namespace tensorpull::python {

/// `make(name, dtype, shape)` returns (address, bytes) of memory that stays valid until `clear()`.
class python_allocator {
 public:
  python_allocator(const py::object& make, const py::object& clear, interruption& stop) noexcept
      : make_(&make), clear_(&clear), stop_(&stop) {}

  result<std::byte*> allocate(const tensor_entry& entry) noexcept {
    const interpreter_lock lock;
    std::byte* memory = nullptr;
    const bool made = stop_->guard([&] {
      py::tuple shape(entry.rank);
      for (std::size_t i = 0; i < entry.rank; ++i) shape[i] = entry.shape[i];
      const py::tuple where = (*make_)(to_text(entry.name), std::string(to_string(entry.type)), shape);
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
    stop_->guard([&] { (*clear_)(); });
  }

 private:
  const py::object *make_, *clear_;
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
    if (const auto done = named_landing::finish(r); !done || agrees_->is_none()) return done;
    const interpreter_lock lock;
    bool right = false;
    if (!stop_->guard([&] { right = (*agrees_)().cast<bool>(); })) return failure(errc::cancelled);
    if (right) return {};
    forgotten_ = true;
    return failure(errc::digest_mismatch);
  }
  bool looked() const noexcept { return forgotten_; }

 private:
  const py::object* agrees_;
  interruption* stop_;
  bool forgotten_ = false;
};

/// Lands in tensors that exist.
using landing = in_one_chunk<asking_landing>;
/// Lands in tensors that are made.
using making = in_one_chunk<new_model<python_allocator>>;

/// Lands in the tensors that are described. `subset`: they are only some of those that are published. `ties`: further
/// names of tensors, which the owner has to have tied as they are here. `run(reference, consumer, options, chunks)`
/// pulls. Returns the receipt, and the metadata as far as `max_header_bytes` lets it be kept; of a subset there is
/// none.
template <class Run>
py::tuple download_into(Run run, std::string_view ref, const py::sequence& described, bool subset, name_ties ties,
                        std::uint64_t max_header_bytes, const pull_settings& s) {
  const tensor_table table(described);
  interruption stop(s.abort);
  landing_table image(table, stop);
  landing to(s.native, image.destination(), std::move(ties), max_header_bytes, s.agrees, stop);
  const receipt got = pull([&](const reference& from, const pull_options& o, chunks c) { return run(from, to, o, c); },
                           ref, s, stop, subset);
  return py::make_tuple(to_python(got), to_python(to.metadata()));
}
/// Returns the receipt and the metadata.
template <class Run>
py::tuple download_new(Run run, std::string_view ref, const py::object& make, const py::object& clear,
                       const most& limits, const pull_settings& s) {
  interruption stop(s.abort);
  making to(s.native, python_allocator(make, clear, stop),
            new_model_limits{limits.bytes, limits.header_bytes, limits.tensors});
  const auto got = try_pull([&](const reference& from, const pull_options& o, chunks c) { return run(from, to, o, c); },
                            ref, s, stop, false, [&] { return to.made().tensor_count != 0 ? &to.made() : nullptr; });
  if (!got) raise(got.error(), true, got.error() == errc::too_large ? above(to.described(), limits, true) : "");
  return py::make_tuple(to_python(*got), to_python(to.made().pairs()));
}

}  // namespace tensorpull::python
