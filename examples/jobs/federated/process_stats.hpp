// The figures that Linux reports of a process: resident memory now and at its peak, threads, open descriptors.
#pragma once

#include <cctype>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include <dirent.h>
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

namespace federated {

struct process_stats {
  std::uint64_t resident_bytes;
  std::uint64_t peak_resident_bytes;
  std::uint64_t threads;
  std::uint64_t descriptors;
};

namespace detail {

using proc_text = char[8192];

inline bool read_proc(const char* path, proc_text& text) {
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  std::size_t size = 0;
  ssize_t got = 0;
  while (size + 1 < sizeof text) {
    got = ::read(file, text + size, sizeof text - 1 - size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    size += static_cast<std::size_t>(got);
  }
  ::close(file);
  text[size] = '\0';
  return got >= 0 && size > 0;
}

/// The number after the name of a line, as in "VmRSS:     1234 kB"; `key` includes the line feed before it.
inline std::optional<std::uint64_t> proc_number(const char* text, const char* key) {
  const char* found = std::strstr(text, key);
  if (found == nullptr) return std::nullopt;
  return std::strtoull(found + std::strlen(key), nullptr, 10);
}

inline std::optional<std::uint64_t> count_descriptors(const char* folder, bool own) {
  DIR* entries = ::opendir(folder);
  if (entries == nullptr) return std::nullopt;
  std::uint64_t count = 0;
  while (const dirent* entry = ::readdir(entries))
    if (std::isdigit(static_cast<unsigned char>(entry->d_name[0]))) ++count;
  ::closedir(entries);
  return own ? count - 1 : count;  // without the descriptor that reads the folder
}

}  // namespace detail

/// The figures of process `pid`; nothing if it has ended or must not be read (another user's). Frees all that it
/// allocates.
inline std::optional<process_stats> stats_of(pid_t pid) {
  char path[64];
  detail::proc_text text;
  const auto in_proc = [&path, pid](const char* name) {
    std::snprintf(path, sizeof path, "/proc/%ld/%s", static_cast<long>(pid), name);
    return path;
  };

  if (!detail::read_proc(in_proc("status"), text)) return std::nullopt;
  const auto peak = detail::proc_number(text, "\nVmHWM:");
  const auto threads = detail::proc_number(text, "\nThreads:");
  auto resident = detail::proc_number(text, "\nVmRSS:");
  const auto descriptors = detail::count_descriptors(in_proc("fd"), pid == ::getpid());
  if (!peak || !threads || !resident || !descriptors) return std::nullopt;

  // VmRSS lags behind by up to 64 pages for each thread or processor; smaps_rollup walks the page tables and is exact.
  if (detail::read_proc(in_proc("smaps_rollup"), text))
    resident = detail::proc_number(text, "\nRss:").value_or(*resident);
  const std::uint64_t peak_kib = *peak > *resident ? *peak : *resident;
  return process_stats{*resident * 1024, peak_kib * 1024, *threads, *descriptors};
}

inline std::optional<process_stats> stats_of_self() { return stats_of(::getpid()); }

}  // namespace federated
