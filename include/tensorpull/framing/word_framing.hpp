// The default framing: it writes Cap'n Proto's bytes without its library and accepts the same frames. It costs less to
// compile, and a machine without that library can use it.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/limits.hpp>
#include <tensorpull/framing/concept.hpp>
#include <tensorpull/framing/detail/control_reader.hpp>
#include <tensorpull/framing/detail/control_writer.hpp>
#include <tensorpull/framing/detail/segment_table.hpp>

namespace tensorpull {

/// A policy for the framing slot. Allocates nothing.
template <class Limits = default_limits>
struct basic_word_framing {
  using is_framing_policy = void;
  using decode_storage = detail::list_storage<Limits>;
  /// Memory for a frame whose names and references are not wanted: decode() checks them and leaves them out.
  using short_storage = detail::short_list_storage<Limits>;

  static result<std::size_t> encode(const frame& m, std::span<std::byte> out) noexcept {
    return detail::write_control_frame(m, out);
  }

  /// bad_frame: not valid Cap'n Proto, or above the limits of traversal and nesting. too_large: more segments, or
  /// longer lists, than the limits allow. unsupported_layout: a chunk (one in the constant layout is read elsewhere).
  /// unexpected_frame: a kind that this version of the protocol does not know.
  template <class Storage>
    requires(std::same_as<Storage, decode_storage> || std::same_as<Storage, short_storage>)
  static result<void> decode(std::span<const std::byte> bytes, frame& m, Storage& lists) noexcept {
    const auto measured = detail::measure_frame(bytes, ~std::size_t{0}, Limits::control_frame_segments);
    if (!measured) return failure(measured.error());
    if (!*measured || **measured != bytes.size()) return failure(errc::bad_frame, bytes.size());
    const auto half = [&](std::size_t i) {
      return static_cast<std::size_t>(load_le64(bytes.data() + 8 * (i / 2)) >> (32 * (i % 2)) & 0xffffffffu);
    };
    const std::size_t count = half(0) + 1;
    std::size_t at = count / 2 + 1;
    for (std::size_t i = 0; i < count; ++i) {
      // the whole frame was measured
      lists.segments[i] = {static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(half(i + 1))};
      at += lists.segments[i].size;
    }
    lists.from = {bytes.data(), lists.segments, count, Limits::traversal_words + bytes.size() / 8};
    return detail::control_reader(m, lists).read(Limits::nesting_levels);
  }
};

/// With the default limits.
using word_framing = basic_word_framing<>;

static_assert(framing<word_framing>);

}  // namespace tensorpull
