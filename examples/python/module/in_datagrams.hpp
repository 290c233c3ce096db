// Pulls over links of datagrams.
#pragma once

#include "other_links.hpp"

#include <algorithm>

namespace tensorpull::python {

/// Chunks are what fits a datagram.
template <class Transport>
using datagram_net = pipeline<tensor_list, fit_datagram, Transport, module_limits>;

/// Many requests are on their way, since chunks are short; the link says how many it carries.
template <class Transport>
result<receipt> pull_in_datagrams(std::string_view address, const reference& from, pull_target to,
                                  pull_options options) noexcept {
  options.window = std::max<std::uint32_t>(options.window, Transport::max_payload_bytes < 64 * 1024 ? 256 : 8);
  return std::visit(
      [&](auto* target) {
        target->most_in_a_frame(Transport::max_payload_bytes);
        return datagram_net<Transport>::pull(address, from, *target, options);
      },
      to);
}

}  // namespace tensorpull::python
