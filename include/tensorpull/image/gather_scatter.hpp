// Any byte range of an image as a list of spans: gather for sending, scatter for receiving. Gather decides what is sent
// straight from the tensors' memory and what is packed into the slice. Scatter decides which addresses of a destination
// a transfer writes to.
#pragma once

#include <tensorpull/image/byte_runs.hpp>
#include <tensorpull/image/header.hpp>
#include <tensorpull/image/packed.hpp>
#include <tensorpull/image/view.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tensorpull {

/// The result of a gather: the first `pieces` spans hold `bytes` bytes of the image.
struct gathered {
  std::size_t pieces = 0;  ///< Spans that were filled.
  std::uint64_t bytes = 0;  ///< Bytes of these spans together.
  std::size_t sliced = 0;  ///< Bytes of the slice that they use, from its beginning on.
  /// the bytes that follow could not be read; none of them are among the pieces
  bool failed = false;
};

namespace detail {

/// Appends pieces to a caller's list. A piece that continues the last one extends it: fewer entries for the system
/// call.
template <class Byte>
class piece_list {
 public:
  explicit piece_list(std::span<std::span<Byte>> out) noexcept : out_(out) {}

  /// Whether a piece that begins there would not be taken.
  bool full(const std::byte* data) const noexcept { return count_ == out_.size() && !continues(data); }
  /// Whether the piece was taken.
  bool add(Byte* data, std::size_t n) noexcept {
    if (continues(data)) {
      out_[count_ - 1] = {out_[count_ - 1].data(), out_[count_ - 1].size() + n};
    } else {
      if (count_ == out_.size()) return false;
      out_[count_++] = {data, n};
    }
    bytes_ += n;
    return true;
  }
  std::size_t count() const noexcept { return count_; }
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  bool continues(const std::byte* data) const noexcept {
    return count_ != 0 && out_[count_ - 1].data() + out_[count_ - 1].size() == data;
  }

  std::span<std::span<Byte>> out_;
  std::size_t count_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace detail

/// Fills `out` with spans that are the image's bytes [offset, offset + bytes), bytes <= length. They point into a
/// tensor if memory holds it as the image does. Header text and all other tensors are written to `slice` by this call.
/// The spans hold until either changes. Stops early when `out` or `slice` is used up, or a source_reader fails. Takes
/// at least one byte if length, out and slice are not empty and nothing failed. Nothing is allocated.
/// Requires that [offset, offset + length) lies within the image. Costs O(log tensors) and the pieces; header text,
/// O(names).
inline gathered gather(const source_view& source, std::uint64_t offset, std::uint64_t length,
                       std::span<std::span<const std::byte>> out, std::span<std::byte> slice) noexcept {
  const image_schema& schema = *source.schema;
  detail::piece_list<const std::byte> pieces(out);
  const std::size_t room = slice.size();
  const auto done = [&](bool failed) noexcept -> gathered {
    return {pieces.count(), pieces.bytes(), room - slice.size(), failed};
  };
  if (offset < schema.header_bytes && length > 0 && !out.empty()) {
    const std::size_t wanted = detail::smaller(length, schema.header_bytes - offset);
    const std::size_t n = write_header(schema, offset, slice.first(detail::smaller(wanted, slice.size())));
    if (n != 0) pieces.add(slice.data(), n);
    slice = slice.subspan(n);
    if (n != wanted) return done(false);
  }
  std::uint64_t at = offset + pieces.bytes() - schema.header_bytes;
  for (std::size_t i = pieces.bytes() < length ? tensor_at(schema, at) : schema.tensor_count; i < schema.tensor_count;
       ++i) {
    const tensor_entry& entry = schema.tensors[i];
    if (entry.begin == entry.end) continue;
    const std::size_t wanted = detail::smaller(length - pieces.bytes(), entry.end - at);
    if (wanted == 0) break;
    std::size_t n = wanted;
    if (entry.in_place()) {
      if (!pieces.add(source.address(i) + static_cast<std::size_t>(at - entry.begin), n)) break;
    } else {
      n = detail::smaller(wanted, slice.size());
      if (n == 0 || pieces.full(slice.data())) break;
      if (!detail::pack(source, i, at - entry.begin, slice.first(n))) return done(true);
      pieces.add(slice.data(), n);
      slice = slice.subspan(n);
      if (n != wanted) break;
    }
    at += n;
  }
  return done(false);
}

/// The same for runs of bytes, of which the first begins at `offset`: their bytes [at, at + length), packed into
/// `slice`. All of them lie within the image, and so do the bytes between them. It also stops after 4,096 runs, so that
/// nobody waits for the shortest.
inline gathered gather(const source_view& source, std::uint64_t offset, const byte_runs& runs, std::uint64_t at,
                       std::uint64_t length, std::span<std::span<const std::byte>> out,
                       std::span<std::byte> slice) noexcept {
  if (!runs.apart()) return gather(source, offset + at, length, out, slice);
  const std::size_t room = out.empty() ? 0 : detail::smaller(length, slice.size());
  const image_schema& schema = *source.schema;
  const std::uint64_t first = offset + runs.distance(at), last = offset + runs.distance(at + length - 1);
  const std::size_t i = first < schema.header_bytes ? schema.tensor_count
                                                    : tensor_at(schema, first - schema.header_bytes);
  // all in one tensor, as a slice of it is, whose memory is like that of the image
  const bool direct = i < schema.tensor_count && schema.tensors[i].in_place() &&
                      last < schema.header_bytes + schema.tensors[i].end;
  std::size_t n = 0;
  bool failed = false;
  for (std::size_t run = 0; run < 4096 && n < room && !failed; ++run) {
    const std::size_t here = detail::smaller(room - n, runs.left_in_run(at + n));
    const std::uint64_t from = offset + runs.distance(at + n);
    std::byte* const to = slice.data() + n;
    if (direct) {
      std::memcpy(
          to, source.address(i) + static_cast<std::size_t>(from - schema.header_bytes - schema.tensors[i].begin), here);
      n += here;
      continue;
    }
    std::span<const std::byte> piece[1];
    const gathered g = gather(source, from, here, piece, {to, here});
    if (g.pieces != 0 && piece[0].data() != to) std::memcpy(to, piece[0].data(), piece[0].size());
    n += static_cast<std::size_t>(g.bytes);
    failed = g.failed;
  }
  if (n != 0) out[0] = slice.first(n);
  return {n != 0 ? 1u : 0u, n, n, failed};
}

/// The result of a scatter: the first `pieces` spans take `bytes` bytes of the image.
struct scattered {
  std::size_t pieces = 0;  ///< Spans that were filled.
  std::uint64_t bytes = 0;  ///< Bytes of these spans together.
};

/// Fills `out` with spans of the destination's memory that take the image's bytes [offset, offset + bytes), bytes <=
/// length. Bytes of tensors that are `indirect` get spans of the writer's staging memory, and on a big-endian machine
/// bytes of numbers get spans of `staging`; hand_over() brings both to where they belong when they have arrived. Stops
/// early when `out` or the staging memory is used up. Nothing is written or allocated. O(log tensors) and the pieces.
/// Requires offset >= header_bytes (a header does not land in tensors) and that [offset, offset + length) lies within
/// the image.
inline scattered scatter(const destination_view& destination, std::uint64_t offset, std::uint64_t length,
                         std::span<std::span<std::byte>> out,
                         [[maybe_unused]] std::span<std::byte> staging = {}) noexcept {
  const image_schema& schema = *destination.schema;
  detail::piece_list<std::byte> pieces(out);
  std::size_t staged = 0;
  std::uint64_t at = offset - schema.header_bytes;
  for (std::size_t i = tensor_at(schema, at); i < schema.tensor_count && pieces.bytes() < length; ++i) {
    const tensor_entry& entry = schema.tensors[i];
    if (entry.begin == entry.end) continue;
    const std::size_t wanted = detail::smaller(length - pieces.bytes(), entry.end - at);
    if (!little_endian_machine && entry.reversed_bytes() != 0) {
      const std::size_t n = detail::smaller(wanted, staging.size());
      if (n == 0 || !pieces.add(staging.data(), n) || n != wanted) break;
      staging = staging.subspan(n);
    } else if (!entry.indirect) {
      if (!pieces.add(destination.address(i) + static_cast<std::size_t>(at - entry.begin), wanted)) break;
    } else {
      const std::span<std::byte> room = destination.writer->staging.subspan(staged);
      const std::size_t n = detail::smaller(wanted, room.size());
      if (n == 0 || !pieces.add(room.data(), n) || n != wanted) break;
      staged += n;
    }
    at += wanted;
  }
  return {pieces.count(), pieces.bytes()};
}

/// Hands bytes that have arrived in spans of scatter() to the destination's writer, as far as they are those of
/// `indirect` tensors. On a big-endian machine it also puts numbers where they belong, in the machine's order. It need
/// not be called on a little-endian machine if there is no writer. `bytes` are the image's bytes from `offset` on,
/// offset >= header_bytes. Error: the writer's, with the tensor's name.
inline result<void> hand_over(const destination_view& destination, std::uint64_t offset,
                              std::span<const std::byte> bytes) noexcept {
  const image_schema& schema = *destination.schema;
  std::uint64_t at = offset - schema.header_bytes;
  for (std::size_t i = tensor_at(schema, at); i < schema.tensor_count && !bytes.empty(); ++i) {
    const tensor_entry& entry = schema.tensors[i];
    if (entry.begin == entry.end) continue;
    const std::size_t n = detail::smaller(bytes.size(), entry.end - at);
    if (!little_endian_machine && entry.reversed_bytes() != 0)
      detail::write_swapped(entry.reversed_bytes(), destination.address(i), at - entry.begin, bytes.first(n));
    else if (entry.indirect)
      if (const auto done = destination.writer->write(destination.writer->context, destination.where[i],
                                                      at - entry.begin, bytes.first(n));
          !done) {
        error why = done.error();
        why.name = entry.name;
        return failure(why);
      }
    bytes = bytes.subspan(n);
    at += n;
  }
  return {};
}

}  // namespace tensorpull
