// An update that is the difference to the round's model in 8 bits. Without the satellite `differences` there is none,
// and options.hpp refuses it.
#pragma once

#include "network.hpp"

#if __has_include(<tensorpull/satellites/differences/widened.hpp>)
#include <tensorpull/satellites/differences/narrowed_difference.hpp>
#include <tensorpull/satellites/differences/widened.hpp>

namespace microcontroller {

inline constexpr bool has_8_bits = true;
using update_in_8_bits = tensorpull::narrowed_difference<>;

/// Pulls an update, which moves the base while it arrives: the consumer gets the whole of it.
template <class Session, class Consumer>
tensorpull::result<tensorpull::receipt> pull_in_8_bits(Session& from, const tensorpull::reference& ref, Consumer& to,
                                                       const mlp& base, const tensorpull::pull_options& options) {
  auto moved = tensorpull::widened<Consumer>::make(to, over_line::parts::tensors::source(base), device_chunk_bytes);
  if (!moved) return tensorpull::failure(moved.error());
  return from.pull(ref, *moved, options);
}

}  // namespace microcontroller
#else
namespace microcontroller {

inline constexpr bool has_8_bits = false;
struct update_in_8_bits {
  static tensorpull::result<update_in_8_bits> make(const auto&, const auto&) {
    return tensorpull::failure(tensorpull::errc::unsupported_request);
  }
  update_in_8_bits model() const { return {}; }
  tensorpull::source_view source() const { return {}; }
};
inline tensorpull::result<tensorpull::receipt> pull_in_8_bits(auto&, const tensorpull::reference&, auto&, const mlp&,
                                                              const tensorpull::pull_options&) {
  return tensorpull::failure(tensorpull::errc::unsupported_request);
}

}  // namespace microcontroller
#endif
