// Rows of a Fortran-order array, turned once for many slices: if a row is long, a slice meets few elements of each
// column.
#pragma once

#include <tensorpull/satellites/numpy_files/detail/npy_reader.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

namespace tensorpull::detail {

/// Some rows of one array, in C order. One for an open file. Any number of threads may read; one of them fills it, and
/// the others do without.
class npy_tile {
 public:
  static constexpr std::size_t most_bytes = std::size_t{4} << 20;

  /// Makes room for rows of this array, if at least two fit; at most most_bytes for all arrays. Throws std::bad_alloc.
  void make_room(const npy_place& place) {
    if (row_bytes(place) > most_bytes / 2) return;
    const std::uint64_t wanted = std::min<std::uint64_t>(most_bytes, row_bytes(place) * place.shape[0]);
    if (wanted <= size_) return;
    bytes_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(wanted));
    size_ = static_cast<std::size_t>(wanted);
  }

  /// As npy_reader::read.
  template <class File>
  result<void> read(const File& file, const npy_place& place, std::uint64_t offset, std::span<std::byte> out) noexcept {
    const std::uint64_t row = row_bytes(place);
    if (row > size_ / 2 || busy_.test_and_set(std::memory_order_acquire))
      return npy_reader(file, place).read(offset, out);
    const auto done = read_rows(file, place, row, offset, out);
    busy_.clear(std::memory_order_release);
    return done;
  }

 private:
  static std::uint64_t row_bytes(const npy_place& place) noexcept {
    std::uint64_t bytes = place.element_bytes;
    for (std::size_t d = 1; d < place.rank; ++d) bytes *= place.shape[d];  // at most the array
    return bytes;
  }

  template <class File>
  result<void> read_rows(const File& file, const npy_place& place, std::uint64_t row, std::uint64_t offset,
                         std::span<std::byte> out) noexcept {
    while (!out.empty()) {
      if (place_ != &place || offset < begin_ || offset >= end_) {
        const std::uint64_t tile = size_ / row * row;
        place_ = nullptr;
        begin_ = offset - offset % tile;  // recipients at different positions within it share it
        end_ = begin_ + std::min(tile, row * place.shape[0] - begin_);
        if (const auto done = npy_reader(file, place)
                                  .read(begin_, {bytes_.get(), static_cast<std::size_t>(end_ - begin_)});
            !done)
          return done;
        place_ = &place;
      }
      const std::size_t n = smaller(out.size(), end_ - offset);
      std::memcpy(out.data(), bytes_.get() + (offset - begin_), n);
      out = out.subspan(n);
      offset += n;
    }
    return {};
  }

  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_ = 0;
  const npy_place* place_ = nullptr;  // the array that it has rows of
  std::uint64_t begin_ = 0, end_ = 0;  // which bytes of it
  std::atomic_flag busy_;
};

}  // namespace tensorpull::detail
