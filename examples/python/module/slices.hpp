// Tensors whose bytes no address of the image leads to: on a device, or landed in with strides. They travel a slice at
// a time, through host memory of a fixed size. A device's tensors are copied by Python (src/tensorpull/_devices.py), so
// that this half knows no device; strides are walked here, without the interpreter's lock.
#pragma once

#include "interruption.hpp"
#include "overlaps.hpp"
#include "tensor_table.hpp"

#include <tensorpull/image/dynamic.hpp>
#include <tensorpull/image/strided.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace tensorpull::python {

/// Copies between devices and a block of host memory, in Python. One copy at a time, whichever thread asks. A thread
/// takes this object's lock before the interpreter's, never after, so no two wait for each other.
class device_copies {
 public:
  device_copies() = default;
  device_copies(const device_copies&) = delete;
  device_copies& operator=(const device_copies&) = delete;

  /// The call that waits for the copies is told of exceptions. None: nobody waits, and they are printed as Python
  /// prints exceptions that no code can catch. The caller does not hold the interpreter's lock.
  void tell(interruption* caller) {
    const std::scoped_lock mine(copying_);
    caller_ = caller;
  }

  /// Calls f, whose exceptions are the caller's.
  template <class F>
  auto within(interruption& caller, F f) {
    tell(&caller);
    auto done = f();
    tell(nullptr);
    return done;
  }

  /// Writes bytes of the tensor that `side` stands for to `out`. Its `read` returns None if they have gone for good,
  /// which is nobody's mistake: only the transfer fails.
  result<void> read(py::handle side, std::uint64_t offset, std::span<std::byte> out) noexcept {
    const interpreters_end::not_within torch;
    const std::scoped_lock mine(copying_);
    const interpreter_lock lock;
    bool gone = false;
    const bool copied = guard([&] {
      while (!out.empty()) {
        const py::object read = side.attr("read")(offset, out.size());
        gone = read.is_none();
        if (gone) return;
        const auto [address, bytes] = read.cast<std::pair<std::uintptr_t, std::size_t>>();
        if (bytes == 0 || bytes > out.size()) throw py::value_error("a device's tensor gave another number of bytes");
        std::memcpy(out.data(), reinterpret_cast<const std::byte*>(address), bytes);
        offset += bytes;
        out = out.subspan(bytes);
      }
    });
    return copied && !gone ? result<void>{} : result<void>(failure(errc::io, offset));
  }
  /// Takes bytes that lie in the block to land in, `at` bytes from its beginning.
  result<void> write(py::handle side, std::uint64_t offset, std::size_t at, std::size_t bytes) noexcept {
    const interpreters_end::not_within torch;
    const std::scoped_lock mine(copying_);
    const interpreter_lock lock;
    const bool copied = guard([&] { side.attr("write")(offset, at, bytes); });
    return copied ? result<void>{} : result<void>(failure(errc::io, offset));
  }

 private:
  template <class F>
  bool guard(F f) noexcept {
    if (caller_ != nullptr) return caller_->guard(f);
    bool copied = false, interrupted = false;
    for (bool again = true; again;) {
      again = false;
      try {
        or_rest(f);
        copied = true;
      } catch (py::error_already_set& thrown) {
        // Ctrl-C is for serve(), which raises it: what is published stays so. f goes on where it was.
        again = thrown.matches(PyExc_KeyboardInterrupt) && !std::exchange(interrupted, true);
        if (!again) thrown.discard_as_unraisable("a copy from a device, for a publication of tensorpull");
      } catch (const std::exception& e) {
        PyErr_SetString(PyExc_RuntimeError, e.what());
        PyErr_WriteUnraisable(nullptr);
      }
    }
    if (interrupted) interrupt_main_thread();
    return copied;
  }

  std::mutex copying_;
  interruption* caller_ = nullptr;
};

/// What a published image reads a device's tensors through. Their tokens are the Python objects that stand for them,
/// which the publication keeps.
class device_reader {
 public:
  /// Shared, since a publication may end while the call that has published it still returns.
  std::shared_ptr<device_copies> copies() const noexcept { return copies_; }
  source_reader reader() const noexcept { return {&read, this}; }

  /// The image for reading of tensors, of which some are on devices.
  dynamic_image image_of(const tensor_table& table,
                         const std::vector<std::pair<std::string, std::string>>& metadata) const {
    std::vector<tensor_view> views;
    for (const tensor_row& r : table.rows()) {
      if (r.side.is_none())
        views.push_back(
            {r.name, r.type, r.shape, reinterpret_cast<const std::byte*>(r.address), r.strides, r.swap, false});
      else views.push_back({r.name, r.type, r.shape, reinterpret_cast<const std::byte*>(r.side.ptr()), {}, 0, true});
    }
    std::vector<metadata_entry> pairs;
    for (const auto& [key, value] : metadata) pairs.push_back({key, value});
    return value_or_raise(dynamic_image::make(views, pairs, reader()));
  }

 private:
  static result<void> read(const void* context, std::uintptr_t token, std::uint64_t offset,
                           std::span<std::byte> out) noexcept {
    return static_cast<const device_reader*>(context)->copies_->read(reinterpret_cast<PyObject*>(token), offset, out);
  }

  std::shared_ptr<device_copies> copies_ = std::make_shared<device_copies>();
};

/// Tensors to land in: contiguous ones are landed in as they are, others by slices. Borrows the table.
class landing_table {
 public:
  /// Raises unsupported_layout for tensors that share memory, and cancelled if `stop` says so meanwhile. `metadata`: of
  /// the image whose bytes have landed already.
  landing_table(const tensor_table& table, interruption& stop,
                const std::vector<std::pair<std::string, std::string>>& metadata = {}) {
    copies_.tell(&stop);
    std::size_t room = 0;
    const py::object* block = nullptr;
    slots_.reserve(table.rows().size());
    for (const tensor_row& r : table.rows()) {
      if (r.swap != 0) raise(errc::unsupported_layout, r.name);
      const bool on_device = !r.side.is_none(), strided = !on_device && !is_contiguous(r.type, r.shape, r.strides);
      const auto bytes = size_bytes(r.type, r.shape);
      if (!bytes) raise(bytes.error().code, r.name);
      if (strided && (r.shape.size() > max_strided_rank || bits(r.type) % 8 != 0))
        raise(errc::unsupported_layout, r.name);
      if (on_device) block = &r.side;
      if (strided) room = std::max(room, std::size_t{strided_staging_bytes});
      sliced_ = sliced_ || on_device || strided;
      slots_.push_back({this, &r, on_device});
      if (on_device || strided)
        views_.push_back({r.name, r.type, r.shape, reinterpret_cast<std::byte*>(&slots_.back()), {}, true});
      else views_.push_back({r.name, r.type, r.shape, reinterpret_cast<std::byte*>(r.address), {}});
    }
    // the image itself compares those that are all contiguous in the CPU's memory
    const std::size_t shared = sliced_ ? shared_by(footprints_of(table), stop) : none;
    if (shared != none)
      raise(errc::unsupported_layout, table.rows()[shared].name,
            "this tensor shares memory with itself or with another that is landed in");
    if (block != nullptr) {
      const auto [address, bytes] = block->attr("landing_block")().cast<std::pair<std::uintptr_t, std::size_t>>();
      staging_ = {reinterpret_cast<std::byte*>(address), bytes};
    } else if (room != 0) {
      own_ = std::make_unique<std::byte[]>(room);
      staging_ = {own_.get(), room};
    }
    reader_ = {&read, this};
    std::vector<metadata_entry> pairs;
    for (const auto& [key, value] : metadata) pairs.push_back({key, value});
    image_.emplace(value_or_raise(dynamic_image::make(
        views_, pairs, sliced_ ? destination_writer{&write, this, staging_, &reader_} : destination_writer{})));
  }
  landing_table(const landing_table&) = delete;
  landing_table& operator=(const landing_table&) = delete;

  destination_view destination() noexcept { return image_->destination(); }

 private:
  static constexpr std::size_t strided_staging_bytes = 256 * 1024;
  static constexpr std::size_t none = ~std::size_t{0};

  struct slot {
    landing_table* of;
    const tensor_row* row;
    bool on_device;

    detail::strided_bytes<std::byte> bytes() const noexcept {
      return {bits(row->type) / 8, row->shape, row->strides.data(), reinterpret_cast<std::byte*>(row->address)};
    }
  };

  static std::vector<footprint> footprints_of(const tensor_table& table) {
    std::vector<footprint> all;
    for (std::size_t i = 0; i < table.rows().size(); ++i) {
      const tensor_row& r = table.rows()[i];
      const auto bytes = size_bytes(r.type, r.shape);
      if (*bytes == 0) continue;
      if (bits(r.type) % 8 != 0)
        all.emplace_back(i, r.space, r.address, *bytes, std::span<const std::uint64_t>(),
                         std::span<const std::int64_t>());
      else all.emplace_back(i, r.space, r.address, bits(r.type) / 8, r.shape, r.strides);
    }
    return all;
  }
  static std::size_t shared_by(std::vector<footprint> all, interruption& stop) {
    const std::size_t found = stop.run([&] { return overlap_search([&stop] { return stop.look(); }).find(all); });
    if (stop.stopped()) raise(errc::cancelled);
    return found;
  }

  static result<void> write(void*, std::uintptr_t token, std::uint64_t offset,
                            std::span<const std::byte> bytes) noexcept {
    const slot& s = *reinterpret_cast<const slot*>(token);
    if (s.on_device)
      return s.of->copies_.write(s.row->side, offset, static_cast<std::size_t>(bytes.data() - s.of->staging_.data()),
                                 bytes.size());
    s.bytes().write(offset, bytes);
    return {};
  }
  static result<void> read(const void*, std::uintptr_t token, std::uint64_t offset, std::span<std::byte> out) noexcept {
    const slot& s = *reinterpret_cast<const slot*>(token);
    if (s.on_device) return s.of->copies_.read(s.row->side, offset, out);
    s.bytes().read(offset, out);
    return {};
  }

  device_copies copies_;
  std::vector<slot> slots_;
  std::vector<mutable_tensor_view> views_;
  std::unique_ptr<std::byte[]> own_;
  std::span<std::byte> staging_;
  source_reader reader_{};
  std::optional<dynamic_image> image_;
  bool sliced_ = false;
};

}  // namespace tensorpull::python
