// Pages of memory from the operating system: they start as zeros, are huge if the system offers it, and go back when
// they are freed.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace tensorpull::detail {

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
  const std::size_t before = (huge_page_bytes - reinterpret_cast<std::uintptr_t>(first) % huge_page_bytes) %
                             huge_page_bytes;
  if (before != 0) ::munmap(first, before);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t used = (bytes + page - 1) / page * page;
  if (slack != before) ::munmap(first + before + used, slack - before);
  ::madvise(first + before, bytes, MADV_HUGEPAGE);
  return first + before;
}
inline void give_pages(void* pages, std::size_t bytes) noexcept { ::munmap(pages, bytes); }

/// For memory that somebody else has allocated and nobody has touched: huge pages where they fit. A hint; nothing
/// depends on it.
inline void advise_huge_pages(std::byte* memory, std::size_t bytes) noexcept {
  const std::size_t before = (huge_page_bytes - reinterpret_cast<std::uintptr_t>(memory) % huge_page_bytes) %
                             huge_page_bytes;
  if (bytes >= before + huge_page_bytes)
    ::madvise(memory + before, (bytes - before) / huge_page_bytes * huge_page_bytes, MADV_HUGEPAGE);
}
#else
inline constexpr bool has_pages = false;
inline void* take_pages(std::size_t) noexcept { return nullptr; }
inline void give_pages(void*, std::size_t) noexcept {}
inline void advise_huge_pages(std::byte*, std::size_t) noexcept {}
#endif

}  // namespace tensorpull::detail
