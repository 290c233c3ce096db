// What recv pulls into: a file that appears when it is complete. One that is there already is compared (finished_file).
#pragma once

#include "transfer_line.hpp"

#include <tensorpull/consumers/any_schema/finished_file.hpp>
#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/core/limits.hpp>

#include <cstdint>
#include <span>
#include <utility>

namespace tools {

namespace tp = tensorpull;
using tensorpull::errc;
using tensorpull::error;
using tensorpull::finished_file;

/// The longest chunk that can be asked for.
inline constexpr std::uint64_t longest_chunk = tp::max_payload_bytes;

/// The file, and a look at what goes into it.
class observed_file : public tp::safetensors_file {
 public:
  observed_file(tp::safetensors_file file, transfer_line& line, bool at_once) noexcept
      : safetensors_file(std::move(file)), line_(&line), at_once_(at_once) {}

  tp::result<void> begin(const tp::description& d) noexcept {
    line_->expect(d.image_bytes);
    if (at_once_ && d.image_bytes > longest_chunk) return tp::failure(errc::does_not_fit, d.image_bytes);
    return safetensors_file::begin(d);
  }
  tp::prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    line_->begin(offset);
    return safetensors_file::prepare(offset, length, out);
  }
  tp::result<void> commit(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    line_->arrived(bytes.size());
    return safetensors_file::commit(offset, bytes);
  }

 private:
  transfer_line* line_;
  bool at_once_;
};
static_assert(tp::consumer<observed_file>);

}  // namespace tools
