// The flash of a device in a file of the machine that emulates it, over ARM's semihosting (the debugger's calls). The
// file outlives an emulator that is killed, so it stands for flash in tests of power cuts. A kill in the middle of a
// call leaves a page erased by half, or a part of the bytes programmed, as a power cut does.
#pragma once

#include <tensorpull/embedded/flash.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

/// A flash_memory in a file. The file is closed when the emulator ends.
class file_flash {
 public:
  static constexpr std::uint32_t page_bytes = 1024, program_bytes = 4;  ///< as in many microcontrollers of this size

  /// Opens a file of `pages` pages, and makes it, erased, if there is none. False: it cannot be opened or made.
  bool open(const char* path, std::uint32_t pages) noexcept {
    constexpr std::uint32_t for_update = 3, new_for_update = 7;  // "r+b" and "w+b"
    file_ = call(sys_open, reinterpret_cast<std::uintptr_t>(path), for_update, std::strlen(path));
    if (file_ == failed)
      file_ = call(sys_open, reinterpret_cast<std::uintptr_t>(path), new_for_update, std::strlen(path));
    if (file_ == failed) return false;
    const std::uint32_t length = call(sys_flen, file_, 0, 0);
    if (length == failed) return false;
    // A kill while the file was made leaves it short.
    pages_ = pages;
    for (std::uint32_t page = length / page_bytes; page < pages; ++page)
      if (!erase(page)) return false;
    return true;
  }

  /// All bits of a page become 1.
  bool erase(std::uint32_t page) noexcept {
    if (page >= pages_ || !seek(page * page_bytes)) return false;
    std::byte blank[piece_bytes];
    std::memset(blank, 0xff, sizeof blank);
    for (std::uint32_t done = 0; done < page_bytes; done += sizeof blank)
      if (!write(blank, sizeof blank)) return false;
    return true;
  }
  /// Bits become 0, and none becomes 1: then it is false, as the error flag of a flash controller.
  bool program(std::uint32_t at, std::span<const std::byte> bytes) noexcept {
    if (at % program_bytes != 0 || bytes.size() % program_bytes != 0) return false;
    bool right = true;
    std::byte there[piece_bytes];
    while (!bytes.empty()) {
      const std::size_t n = bytes.size() < sizeof there ? bytes.size() : sizeof there;
      if (!read(at, {there, n})) return false;
      for (std::size_t i = 0; i < n; ++i) {
        there[i] &= bytes[i];
        right &= there[i] == bytes[i];
      }
      if (!seek(at) || !write(there, n)) return false;
      at += static_cast<std::uint32_t>(n);
      bytes = bytes.subspan(n);
    }
    return right;
  }
  /// Any bytes of the file.
  bool read(std::uint32_t at, std::span<std::byte> out) noexcept {
    const std::uint32_t all = pages_ * page_bytes;
    if (at > all || out.size() > all - at || !seek(at)) return false;
    // how many bytes it has not read
    return call(sys_read, file_, reinterpret_cast<std::uintptr_t>(out.data()), out.size()) == 0;
  }

 private:
  static constexpr std::uint32_t sys_open = 0x01, sys_write = 0x05, sys_read = 0x06, sys_seek = 0x0a, sys_flen = 0x0c,
                                 failed = ~0u;
  static constexpr std::size_t piece_bytes = 64;

  /// A call of the debugger with a block of arguments.
  static std::uint32_t call(std::uint32_t number, std::uint32_t a, std::uint32_t b, std::uint32_t c) noexcept {
    const std::uint32_t block[3] = {a, b, c};
    register std::uint32_t r0 asm("r0") = number;
    register const std::uint32_t* r1 asm("r1") = block;
    asm volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
  }
  bool seek(std::uint32_t at) const noexcept { return call(sys_seek, file_, at, 0) == 0; }
  bool write(const std::byte* bytes, std::size_t n) const noexcept {
    // how many bytes it has not written
    return call(sys_write, file_, reinterpret_cast<std::uintptr_t>(bytes), n) == 0;
  }

  std::uint32_t file_ = failed, pages_ = 0;
};

static_assert(tensorpull::flash_memory<file_flash>);
