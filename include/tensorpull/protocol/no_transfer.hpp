// The recipient role of an end that only owns.
#pragma once

#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/framing/frame.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

/// Asks for nothing and takes nothing.
struct no_transfer {
  static constexpr std::size_t read_piece_bytes = 64 * 1024;
  static constexpr bool next(frame&) noexcept { return false; }
  static constexpr bool next_is_long() noexcept { return false; }
  static constexpr void fail(const error&) noexcept {}
  static constexpr void on(const frame&) noexcept {}
  static constexpr bool on_chunk(const frame&) noexcept { return false; }
  static constexpr prepared prepare(std::span<std::span<std::byte>>, std::uint64_t) noexcept { return {}; }
  static constexpr void landed(std::span<const std::byte>) noexcept {}
  static constexpr bool awaiting_chunk() noexcept { return false; }
  static constexpr bool described() noexcept { return false; }
  static constexpr bool ended() noexcept { return true; }
  static constexpr std::uint32_t next_id() noexcept { return 1; }
};

}  // namespace tensorpull
