// Checks whether a user's link is a datagram link: first each numbered requirement of links/datagram_link.hpp, then
// whole transfers over it, with the faults of networks.
#pragma once

#include <tensorpull/testing/conformance/detail/datagram_requirements.hpp>
#include <tensorpull/testing/conformance/detail/datagram_transfers.hpp>
#include <tensorpull/testing/conformance/detail/reported.hpp>

namespace tensorpull::testing {

/// Runs all checks on the caller's thread. `connect` is called for each of them, some dozens of times. A link may lose,
/// double and re-order datagrams. A call of it that never returns hangs the check. Throws only what the link, `connect`
/// or the heap throws. Print the report, or look up one number.
template <datagram_factory Connect>
conformance_report check_datagram_link(Connect connect, const conformance_options& options = {}) {
  return detail::reported([&](conformance_report& report) {
    detail::datagram_probe<Connect> probe(connect, options, report);
    detail::datagram_requirements<Connect>(probe).run();
    detail::datagram_transfers<Connect>(probe).run();
  });
}

}  // namespace tensorpull::testing
