// Arrays in files, in every layout, with the image that they must give.
#pragma once

#include <tensorpull/satellites/numpy_files/detail/npy_tile.hpp>

#include "memory_file.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace test {

struct sample {
  std::vector<std::uint64_t> shape;
  std::uint8_t element_bytes, swap_bytes;
  bool fortran;
};

/// The file of an array whose element number i (in C's order) consists of the bytes 16 i, 16 i + 1, ... (modulo 251);
/// and its image.
struct laid_out {
  sample s;
  test::memory_file file{};
  std::string image{};
  tensorpull::detail::npy_place place{};

  explicit laid_out(const sample& given) : s(given) {
    std::uint64_t elements = 1;
    for (const auto n : s.shape) elements *= n;
    file.content.assign(7 + elements * s.element_bytes, '\0');
    for (std::uint64_t i = 0; i < elements; ++i) {
      std::uint64_t at = i, stride = 1, rest = i;
      if (s.fortran) {
        at = 0;
        std::vector<std::uint64_t> index(s.shape.size());
        for (std::size_t d = s.shape.size(); d-- > 0; rest /= s.shape[d]) index[d] = rest % s.shape[d];
        for (std::size_t d = 0; d < s.shape.size(); stride *= s.shape[d++]) at += index[d] * stride;
      }
      for (std::uint64_t b = 0; b < s.element_bytes; ++b) {
        const char byte = static_cast<char>((16 * i + b) % 251);
        image += byte;
        const std::uint64_t in_number = s.swap_bytes == 0 ? b
                                                          : b - b % s.swap_bytes + s.swap_bytes - 1 - b % s.swap_bytes;
        file.content[7 + at * s.element_bytes + in_number] = byte;
      }
    }
    place = {7, s.element_bytes, s.swap_bytes, s.fortran ? static_cast<std::uint8_t>(s.shape.size()) : std::uint8_t{0},
             s.shape.data()};
  }
  std::string read(std::uint64_t offset, std::size_t n) {
    std::string out(n, '?');
    const auto done = tensorpull::detail::npy_reader(file, place).read(offset, std::as_writable_bytes(std::span(out)));
    return done ? out : "failed";
  }
  /// The same through a tile.
  std::string read(tensorpull::detail::npy_tile& tile, std::uint64_t offset, std::size_t n) {
    std::string out(n, '?');
    const auto done = tile.read(file, place, offset, std::as_writable_bytes(std::span(out)));
    return done ? out : "failed";
  }
};

}  // namespace test
