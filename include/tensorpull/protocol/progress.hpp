// Progress as both sides report it.
#pragma once

#include <tensorpull/core/error.hpp>
#include <tensorpull/core/ids.hpp>
#include <tensorpull/image/schema.hpp>

#include <cstdint>
#include <string_view>

namespace tensorpull {

enum class progress_phase : std::uint8_t {
  started,
  active,
  completed,
  failed,
  aborted,
};

constexpr std::string_view to_string(progress_phase p) noexcept {
  switch (p) {
    case progress_phase::started: return "started";
    case progress_phase::active: return "active";
    case progress_phase::completed: return "completed";
    case progress_phase::failed: return "failed";
    case progress_phase::aborted: return "aborted";
  }
  return "unknown";
}

/// One event of one recipient of one reference. Bytes never go back; `active` at most once in each interval, the others once.
struct progress_event {
  std::uint64_t sequence = 0;  ///< grows by one with each event of its source
  progress_phase phase = progress_phase::started;
  ref_id ref{};
  recipient_id recipient{};    ///< none: anonymous
  std::uint64_t bytes_done = 0;
  std::uint64_t bytes_total = 0;
  std::uint64_t tensors_done = 0;   ///< whole ones
  std::uint64_t tensors_total = 0;
  errc code{};                 ///< failed, aborted: why; otherwise none
};

/// Fills in how much of an image with this schema is done.
constexpr void count_done(progress_event& e, const image_schema& schema, std::uint64_t bytes) noexcept {
  e.bytes_total = schema.image_bytes;
  e.bytes_done = bytes < schema.image_bytes ? bytes : schema.image_bytes;
  e.tensors_total = schema.tensor_count;
  e.tensors_done = e.bytes_done < schema.header_bytes ? 0 : tensor_at(schema, e.bytes_done - schema.header_bytes);
}

}  // namespace tensorpull
