// The references of this example. Everybody knows them beforehand, so nobody has to announce them. A recipient that is
// early asks again.
#pragma once

#include <tensorpull/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace microcontroller {

/// Chunks of the device, in both directions.
inline constexpr std::size_t device_chunk_bytes = 512;

/// The server's model at the beginning of a round, from 1 on. The one behind the last round is what all have learned.
constexpr tensorpull::ref_id model_of(std::uint32_t round) noexcept { return {1, round}; }
/// The signed reference of that model, for a device that proves what lands.
constexpr tensorpull::ref_id reference_of(std::uint32_t round) noexcept { return {3, round}; }
/// What a site made of it.
constexpr tensorpull::ref_id update_of(std::uint32_t site, std::uint32_t round) noexcept {
  return {2, std::uint64_t{site} * 1000 + round};
}
/// A site is the same recipient whenever it was started.
constexpr tensorpull::recipient_id recipient_of(std::uint32_t site) noexcept {
  return {0x5'1000 + std::uint64_t{site}};
}

/// For whom references are signed.
inline constexpr std::string_view federation = "digits";
/// How one travels, as a tensor: no longer one is taken. Zeros behind its last line.
struct reference_text {
  std::uint8_t text[512];
};

}  // namespace microcontroller
