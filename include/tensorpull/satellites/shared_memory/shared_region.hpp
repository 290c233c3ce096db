// A model in memory that can be given to other programs: publishing it copies nothing.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/satellites/shared_memory/sealed_memory.hpp>

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace tensorpull {

/// Memory that is mapped for writing here, and that other programs can be given for reading. It is freed when the last
/// program lets go of it.
class shared_region {
 public:
  /// Zeroed memory. out_of_memory with errno.
  static result<std::shared_ptr<shared_region>> make(std::size_t bytes) noexcept {
    auto fd = detail::make_memory_file(bytes);
    if (!fd) return failure(fd.error());
    // reserved now, so that a lack of memory is an error here; later it could only be a signal
    if (::fallocate(fd->get(), 0, 0, static_cast<off_t>(bytes)) != 0)
      return failure(errc::out_of_memory, bytes, {}, errno);
    auto pages = detail::mapped_memory::of(fd->get(), bytes, PROT_READ | PROT_WRITE, MAP_SHARED);
    if (!pages) return failure(pages.error());
    try {
      return std::make_shared<shared_region>(std::move(*fd), std::move(*pages));
    } catch (...) {
      return failure(errc::out_of_memory, bytes);
    }
  }
  /// For make().
  shared_region(detail::file_descriptor fd, detail::mapped_memory pages) noexcept
      : fd_(std::move(fd)), pages_(std::move(pages)) {}

  /// The descriptor, which stays the region's.
  int descriptor() const noexcept { return fd_.get(); }
  /// The first byte.
  std::byte* data() const noexcept { return pages_.data(); }
  /// How many bytes there are.
  std::size_t size() const noexcept { return pages_.size(); }

 private:
  detail::file_descriptor fd_;
  detail::mapped_memory pages_;
};

/// A model made by make_shared_model(). Copies share it. Publish this object (`add_tensors(model)`), not the model that
/// it points to: the owner then keeps a copy of the pointer until settlement, and gives recipients the memory.
template <class Model>
class shared_model {
 public:
  /// No model.
  shared_model() noexcept = default;
  /// For make_shared_model().
  explicit shared_model(std::shared_ptr<shared_region> region) noexcept : region_(std::move(region)) {}

  Model& operator*() const noexcept { return *get(); }
  Model* operator->() const noexcept { return get(); }
  /// The model; nullptr: there is none.
  Model* get() const noexcept { return region_ ? std::launder(reinterpret_cast<Model*>(region_->data())) : nullptr; }
  /// Its memory.
  const std::shared_ptr<shared_region>& region() const noexcept { return region_; }

 private:
  std::shared_ptr<shared_region> region_;
};

/// A new model, all zero, in memory that can be given to other programs. out_of_memory with errno (also RLIMIT_FSIZE).
template <class Model>
[[nodiscard]] result<shared_model<Model>> make_shared_model() noexcept {
  static_assert(std::is_trivially_copyable_v<Model> && std::is_trivially_destructible_v<Model>,
                "tensorpull: make_shared_model needs a model that consists of numbers: other programs read its bytes");
  static_assert(alignof(Model) <= 4096, "tensorpull: make_shared_model needs a model that may begin at a page");
  auto region = shared_region::make(sizeof(Model));
  if (!region) return failure(region.error());
  return shared_model<Model>(std::move(*region));
}

}  // namespace tensorpull
