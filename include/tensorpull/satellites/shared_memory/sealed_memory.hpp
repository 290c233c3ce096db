// Anonymous memory with a descriptor, and seals that the kernel enforces: memory that one process can give another to
// read (Linux: memfd_create(2), fcntl(2) under "File Sealing"). It has no name, so nothing is left behind when the last
// process is gone.
#pragma once

#include <tensorpull/core/detail/replace.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/system/files.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#ifndef MFD_NOEXEC_SEAL
/// As in linux/memfd.h, for C libraries that do not have it.
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE
/// As in linux/fcntl.h, for C libraries that do not have it.
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace tensorpull {

/// The promise of the seals of a piece of memory.
enum class sealing : std::uint8_t {
  none,  ///< it may shrink, or any program that holds it may write it
  others,  ///< its size stays, and only programs that mapped it for writing before can write it
  all,  ///< nobody changes it any more
};

namespace detail {

/// Memory of `bytes` zero bytes, which takes no room before it is written. out_of_memory with errno: no memory, no
/// descriptors, or RLIMIT_FSIZE is below `bytes`.
inline result<file_descriptor> make_memory_file(std::uint64_t bytes) noexcept {
  constexpr unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  file_descriptor fd(::memfd_create("tensorpull", flags | MFD_NOEXEC_SEAL));
  if (!fd && errno == EINVAL) fd = file_descriptor(::memfd_create("tensorpull", flags));  // a kernel before 6.3
  if (!fd) return failure(errc::out_of_memory, bytes, {}, errno);
  if (bytes > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max()))
    return failure(errc::out_of_memory, bytes, {}, EFBIG);
  if (const int system = resize(fd.get(), bytes); system != 0) return failure(errc::out_of_memory, bytes, {}, system);
  return fd;
}

/// Adds seals that cannot be removed. io with errno: the kernel has no such seal (5.1 and newer do), or, for `all`,
/// somebody has the memory mapped for writing.
inline result<void> seal_memory(int fd, sealing against) noexcept {
  const int write = against == sealing::all ? F_SEAL_WRITE : F_SEAL_FUTURE_WRITE;
  if (::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | write | F_SEAL_SEAL) != 0)
    return failure(errc::io, 0, {}, errno);
  return {};
}

/// The promise of any descriptor's seals; `none` if it is not such memory.
inline sealing sealing_of(int fd) noexcept {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || (seals & F_SEAL_GROW) == 0) return sealing::none;
  if ((seals & F_SEAL_WRITE) != 0) return sealing::all;
  return (seals & F_SEAL_FUTURE_WRITE) != 0 ? sealing::others : sealing::none;
}

/// Owns a mapping. Movable.
class mapped_memory {
 public:
  mapped_memory() noexcept = default;
  mapped_memory(mapped_memory&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  mapped_memory& operator=(mapped_memory&& other) noexcept { return replace(*this, std::move(other)); }
  ~mapped_memory() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
  }

  /// Maps the first `bytes` bytes of a descriptor. out_of_memory with errno.
  static result<mapped_memory> of(int fd, std::uint64_t bytes, int protection, int flags) noexcept {
    if (bytes == 0 || bytes > std::numeric_limits<std::size_t>::max() / 2)
      return failure(errc::out_of_memory, bytes, {}, EINVAL);
    void* const at = ::mmap(nullptr, static_cast<std::size_t>(bytes), protection, flags, fd, 0);
    if (at == MAP_FAILED) return failure(errc::out_of_memory, bytes, {}, errno);
    mapped_memory out;
    out.data_ = static_cast<std::byte*>(at);
    out.bytes_ = static_cast<std::size_t>(bytes);
    return out;
  }

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace detail

}  // namespace tensorpull
