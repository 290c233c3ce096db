// Any byte range of an array in an npy file, in an image's order. Reads no more of the file than the range needs.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/image/schema.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tensorpull::detail {

/// The position and layout of an array in a file.
struct npy_place {
  /// of its first byte
  std::uint64_t offset = 0;
  std::uint8_t element_bytes = 1;
  /// bytes of each number that lies in another byte order than that of images, or 0
  std::uint8_t swap_bytes = 0;
  /// The first index changes fastest: then the shape is needed; no extent is 0, and rank is at least 1. Otherwise rank
  /// is 0.
  std::uint8_t rank = 0;
  const std::uint64_t* shape = nullptr;
};

/// `File` has read_at(offset, span), as positioned_file has. Lives on the stack: about 5 KiB.
template <class File>
class npy_reader {
 public:
  npy_reader(const File& file, const npy_place& place) noexcept : file_(file), place_(place) {}

  /// Writes the array's bytes [offset, offset + out.size()), which must exist. Errors: those of the file. In C order it
  /// is one read; in Fortran order one for each column that the range meets, of a run of its rows.
  result<void> read(std::uint64_t offset, std::span<std::byte> out) noexcept {
    if (place_.rank == 0 && place_.swap_bytes == 0) return file_.read_at(place_.offset + offset, out);
    const std::size_t width = place_.element_bytes;
    std::uint64_t element = offset / width;
    if (const auto within = static_cast<std::size_t>(offset % width); within != 0) {
      const std::size_t n = std::min(out.size(), width - within);
      if (const auto done = read_part(element++, within, out.first(n)); !done) return done;
      out = out.subspan(n);
    }
    const std::size_t rest = out.size() % width, whole = out.size() - rest;
    if (whole != 0)
      if (const auto done = read_elements(element, out.first(whole)); !done) return done;
    return rest == 0 ? result<void>{} : read_part(element + whole / width, 0, out.subspan(whole));
  }

 private:
  result<void> read_part(std::uint64_t element, std::size_t within, std::span<std::byte> out) noexcept {
    std::array<std::byte, 8> room{};
    if (const auto done = read_elements(element, std::span(room).first(place_.element_bytes)); !done) return done;
    std::copy_n(room.begin() + within, out.size(), out.begin());
    return {};
  }

  result<void> read_elements(std::uint64_t element, std::span<std::byte> out) noexcept {
    const auto done = place_.rank == 0 ? file_.read_at(place_.offset + element * place_.element_bytes, out)
                                       : read_columns(element, out);
    if (done && place_.swap_bytes != 0)
      for (std::byte* at = out.data(); at != out.data() + out.size(); at += place_.swap_bytes)
        std::reverse(at, at + place_.swap_bytes);
    return done;
  }

  // In Fortran's order the file is a matrix of columns: a row for each first index, a column for each combination of
  // the others.
  result<void> read_columns(std::uint64_t element, std::span<std::byte> out) noexcept {
    const std::uint64_t rows = place_.shape[0];
    std::uint64_t columns = 1;
    for (std::size_t d = 1; d < place_.rank; ++d) columns *= place_.shape[d];
    const std::uint64_t end = element + out.size() / place_.element_bytes;
    const std::uint64_t first_row = element / columns, first_column = element % columns;
    const std::uint64_t end_row = end / columns, end_column = end % columns;
    seek_column(first_column);
    for (std::uint64_t left = std::min(columns, end - element), c = first_column; left > 0; --left) {
      const std::uint64_t row = first_row + (c < first_column ? 1 : 0), last = end_row + (c < end_column ? 1 : 0);
      const std::uint64_t to = row * columns + c - element;
      if (const auto done = read_column(row, last - row, rows, columns,
                                        out.subspan(static_cast<std::size_t>(to) * place_.element_bytes));
          !done)
        return done;
      next_column();
      c = c + 1 == columns ? 0 : c + 1;
    }
    return {};
  }

  /// n rows of the current column, to positions that are `columns` elements apart.
  result<void> read_column(std::uint64_t row, std::uint64_t n, std::uint64_t rows, std::uint64_t columns,
                           std::span<std::byte> out) noexcept {
    const std::size_t width = place_.element_bytes;
    std::uint64_t to = 0;
    while (n > 0) {
      const std::size_t run = smaller(n, run_.size() / width);
      const std::span<std::byte> bytes(run_.data(), run * width);
      if (const auto done = file_.read_at(place_.offset + (column_ * rows + row) * width, bytes); !done) return done;
      for (std::size_t i = 0; i < run; ++i, to += columns)
        std::memcpy(out.data() + to * width, bytes.data() + i * width, width);
      row += run;
      n -= run;
    }
    return {};
  }

  /// index_ counts the columns in C's order; column_ is the position of the current one in the file.
  void seek_column(std::uint64_t column) noexcept {
    column_ = 0;
    std::uint64_t stride = 1;
    for (std::size_t d = place_.rank; d-- > 1;) {
      index_[d] = column % place_.shape[d];
      column /= place_.shape[d];
    }
    for (std::size_t d = 1; d < place_.rank; ++d) {
      strides_[d] = stride;
      column_ += index_[d] * stride;
      stride *= place_.shape[d];
    }
  }
  void next_column() noexcept {
    for (std::size_t d = place_.rank; d-- > 1;) {
      column_ += strides_[d];
      if (++index_[d] < place_.shape[d]) return;
      column_ -= strides_[d] * index_[d];
      index_[d] = 0;
    }
  }

  const File& file_;
  const npy_place& place_;
  std::uint64_t column_ = 0;
  std::array<std::uint64_t, 64> index_{}, strides_{};
  std::array<std::byte, 4096> run_;
};

}  // namespace tensorpull::detail
