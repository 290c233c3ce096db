// A message of the program as a frame, held to the limits.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/framing/frame.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull::detail {

/// Makes `out` a message, which borrows references and body. does_not_fit: they are above the limits.
template <class Limits>
result<void> make_message(std::uint32_t kind, std::span<const reference> references, std::span<const std::byte> body,
                          frame& out) noexcept {
  if (body.size() > Limits::application_body_bytes || references.size() > Limits::application_references)
    return failure(errc::does_not_fit, body.size());
  out.kind = frame_kind::application;
  out.application = kind;
  out.references = references;
  out.body = body;
  return {};
}

}  // namespace tensorpull::detail
