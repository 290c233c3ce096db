// A model on the heap: large ones in pages of their own, which start as zeros, are huge if the system offers it, and go
// back when freed. The first write to a page costs a page fault; huge pages make these fewer. For hosts.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/std/memory.hpp>
#include <tensorpull/system/pages.hpp>

#include <cstddef>
#include <new>
#include <type_traits>

namespace tensorpull {

namespace detail {

template <class Model>
inline constexpr bool lives_in_pages = has_pages && sizeof(Model) >= std::size_t{128} * 1024 && alignof(Model) <= 4096;

template <class Model>
struct model_deleter {
  void operator()(Model* model) const noexcept {
    if constexpr (lives_in_pages<Model>) {
      model->~Model();
      give_pages(model, sizeof(Model));
    } else {
      delete model;
    }
  }
};

}  // namespace detail

/// Sole ownership of a model made by make_model, with the members of std::unique_ptr; it converts to that, and to
/// std::shared_ptr.
template <class Model>
using model_ptr = detail::unique_ptr<Model, detail::model_deleter<Model>>;

/// A new model whose members are zero, or what their default initialisers say. out_of_memory if there is no room; never
/// throws. On Linux, a model of at least 128 KiB (and an alignment of at most 4096) has pages of its own, which go back
/// to the system when it is freed; for at least 4 MiB the system is asked for huge pages.
template <class Model>
[[nodiscard]] result<model_ptr<Model>> make_model() noexcept {
  static_assert(std::is_nothrow_default_constructible_v<Model>,
                "tensorpull: make_model needs a model whose default constructor does not throw");
  if constexpr (detail::lives_in_pages<Model>) {
    void* const pages = detail::take_pages(sizeof(Model));
    if (pages == nullptr) return failure(errc::out_of_memory);
    // Without an initialiser, so that pages stay untouched until they are written. mmap starts the lifetime of trivial
    // models.
    if constexpr (std::is_trivially_default_constructible_v<Model>)
      return model_ptr<Model>(std::launder(static_cast<Model*>(pages)));
    else return model_ptr<Model>(::new (pages) Model);
  } else {
    Model* const model = new (std::nothrow) Model();
    if (model == nullptr) return failure(errc::out_of_memory);
    return model_ptr<Model>(model);
  }
}

}  // namespace tensorpull
