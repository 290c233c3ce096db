// A framing that reads control frames with the Cap'n Proto library. It writes the same bytes as the default framing.
// The headers here and those of messages are the only ones that include capnp or kj.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/limits.hpp>
#include <tensorpull/framing/capnp/detail/capnp_read.hpp>
#include <tensorpull/framing/capnp/detail/quiet_kj.hpp>
#include <tensorpull/framing/concept.hpp>
#include <tensorpull/framing/detail/control_writer.hpp>
#include <tensorpull/framing/detail/payload_prefix.hpp>
#include <tensorpull/framing/detail/segment_table.hpp>

#include <capnp/message.h>

#include <array>
#include <limits>

namespace tensorpull {

/// A policy for the framing slot. Allocates nothing for valid frames.
template <class Limits = default_limits>
struct basic_capnp_framing {
  using is_framing_policy = void;
  using decode_storage = detail::capnp_lists<Limits>;

  static result<std::size_t> encode(const frame& m, std::span<std::byte> out) noexcept {
    return detail::write_control_frame(m, out);
  }

  /// bad_frame: not valid Cap'n Proto, or above the limits of traversal and nesting. too_large: more segments, or
  /// longer lists, than the limits allow. unsupported_layout: a chunk (one in the constant layout is read elsewhere).
  /// unexpected_frame: a kind that this version of the protocol does not know.
  static result<void> decode(std::span<const std::byte> bytes, frame& m, decode_storage& lists) noexcept {
    const auto measured = detail::measure_frame(bytes, std::numeric_limits<std::size_t>::max(),
                                                Limits::control_frame_segments);
    if (!measured) return failure(measured.error());
    if (!*measured || **measured != bytes.size()) return failure(errc::bad_frame, bytes.size());
    std::array<kj::ArrayPtr<const capnp::word>, Limits::control_frame_segments> segments;
    const std::size_t count = static_cast<std::size_t>((load_le64(bytes.data()) & 0xffffffffu) + 1);
    std::size_t at = (count / 2 + 1) * 8;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t words = static_cast<std::size_t>(
          load_le64(bytes.data() + 8 * ((i + 1) / 2)) >> (32 * ((i + 1) % 2)) & 0xffffffffu);
      segments[i] = kj::arrayPtr(reinterpret_cast<const capnp::word*>(bytes.data() + at), words);
      at += 8 * words;
    }
    result<void> read{};
    const bool ok = detail::quietly([&] {
      capnp::ReaderOptions options;
      options.traversalLimitInWords = Limits::traversal_words + bytes.size() / 8;
      options.nestingLimit = Limits::nesting_levels;
      capnp::SegmentArrayMessageReader reader(kj::arrayPtr(segments.data(), count), options);
      read = detail::read_frame(reader.getRoot<capnp::AnyStruct>(), m, lists);
    });
    if (!ok) return failure(errc::bad_frame);
    return read;
  }
};

/// With the default limits.
using capnp_framing = basic_capnp_framing<>;

static_assert(framing<capnp_framing>, "tensorpull: a framing must model the framing concept");

}  // namespace tensorpull
