// How an owner's answer is written, whatever carries it: its image is pinned as long as bytes of it are on their way,
// and one that is gone or cannot be read is given up. Every end that sends an owner's bytes goes through here.
#pragma once

#include <tensorpull/framing/detail/payload_prefix.hpp>
#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/protocol/pending_reply.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull::detail {

/// Whether an answer is about an image, which has to be pinned while it is written and sent.
constexpr bool is_about_image(const pending_reply& r) noexcept {
  return r.kind != frame_kind::refused && r.kind != frame_kind::confirmed && r.kind != frame_kind::nothing;
}

/// The state of an image that was to be used.
enum class image_use : std::uint8_t {
  pinned,      ///< it was used, and stays pinned: the owner's unpin() has to follow
  gone,        ///< it is not published any more
  unreadable,  ///< it could not be read, and the owner knows
};
/// Pins the image behind an answer and calls `use(image)`, which returns whether the image could be read.
template <class Owner, class Use>
image_use use_image(Owner& owner, const pending_reply& r, Use use) noexcept {
  const source_view* const image = owner.pin(r);
  if (image == nullptr) return image_use::gone;
  if (use(*image)) return image_use::pinned;
  owner.unreadable(r);
  owner.unpin(r, 0);
  return image_use::unreadable;
}

/// How an answer can be written now.
enum class reply_form : std::uint8_t {
  payload,      ///< its chunk was written, and its image is pinned
  about_image,  ///< as the frame that the owner makes of it; its image is pinned
  plain,        ///< the same without an image: it needs none, or it is a refusal now
  lost,         ///< not at all: it was begun, and the rest of its frame cannot be produced any more
};
/// Pins the image if the answer needs one, and lets `chunk(image)` write a chunk, which returns whether the image could
/// be read. An answer whose image is gone becomes a refusal, unless it was `begun`: then it goes on with the same
/// content, if that was published again.
template <class Owner, class Chunk>
reply_form form_of(Owner& owner, pending_reply& r, bool begun, Chunk chunk) noexcept {
  if (!is_about_image(r)) return reply_form::plain;
  const bool is_chunk = r.kind == frame_kind::chunk;
  const auto use = [&](const source_view& image) noexcept { return !is_chunk || chunk(image); };
  image_use how = use_image(owner, r, use);
  if constexpr (requires { owner.renew(r); })
    if (how == image_use::gone && begun && owner.renew(r)) how = use_image(owner, r, use);
  if (how == image_use::pinned) return is_chunk ? reply_form::payload : reply_form::about_image;
  if (begun) return reply_form::lost;
  owner.refuse_gone(r);
  return reply_form::plain;
}

/// Bytes of payload among the first n of a chunk's frame.
constexpr std::size_t payload_within(std::size_t n, std::size_t payload) noexcept {
  return n <= payload_prefix::bytes ? 0 : std::min(n - payload_prefix::bytes, payload);
}
/// As gather(), of a chunk's payload [at, at + length).
template <bool Slices>
gathered gather_payload(const source_view& image, const frame& chunk, std::uint64_t at, std::uint64_t length,
                        std::span<std::span<const std::byte>> out, std::span<std::byte> slice) noexcept {
  if constexpr (Slices) return gather(image, chunk.offset, runs_of(chunk), at, length, out, slice);
  else return gather(image, chunk.offset + at, length, out, slice);
}
/// A part of a chunk's frame, as spans.
struct chunk_part {
  std::size_t spans = 0;  ///< how many
  std::size_t bytes = 0;  ///< in all of them
  std::size_t scratch = 0;  ///< bytes of the scratch memory that they use, from its beginning on
  bool whole = false;  ///< it reaches the frame's end
  bool failed = false;  ///< the image cannot be read: there is nothing
};
/// The frame of a chunk without its first `skip` bytes, which were sent before: prefix, payload, padding; at most
/// `most` bytes of payload, and what fits. `out`: at least two spans. `scratch`: for a prefix, and for what is not in
/// memory as it is sent. `Slices`: limits::slices.
template <bool Slices = true>
chunk_part write_chunk(const frame& chunk, const source_view& image, std::size_t skip, std::uint64_t most,
                       std::span<std::span<const std::byte>> out, std::span<std::byte> scratch) noexcept {
  using prefix = payload_prefix;
  static constexpr std::byte zeros[8]{};
  chunk_part part;
  const auto add = [&](std::span<const std::byte> bytes) noexcept {
    if (!bytes.empty()) out.data()[part.spans++] = bytes;
    part.bytes += bytes.size();
  };
  if (skip < prefix::bytes) {
    prefix::write(chunk, scratch.first<prefix::bytes>());
    add(scratch.subspan(skip, prefix::bytes - skip));
    part.scratch = prefix::bytes;
  }
  const std::size_t done = payload_within(skip, chunk.length);
  std::uint64_t left = chunk.length - done;
  if (left > 0) {
    const gathered g = gather_payload<Slices>(image, chunk, done, std::min(left, most),
                                              {out.data() + part.spans, out.size() - part.spans - 1},
                                              scratch.subspan(part.scratch));
    if (g.failed && g.bytes == 0) return {.failed = true};  // after some bytes: the next call fails
    part.spans += g.pieces;
    part.bytes += static_cast<std::size_t>(g.bytes);
    part.scratch += g.sliced;
    left -= g.bytes;
  }
  part.whole = left == 0;
  if (part.whole) add({zeros, static_cast<std::size_t>(prefix::frame_bytes(chunk.length)) - (skip + part.bytes)});
  return part;
}

}  // namespace tensorpull::detail
