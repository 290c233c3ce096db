// Checks whether a user's stream is a byte stream: first each numbered requirement of links/byte_stream.hpp, then whole
// transfers through it, with the faults of networks.
#pragma once

#include <tensorpull/testing/conformance/detail/reported.hpp>
#include <tensorpull/testing/conformance/detail/stream_requirements.hpp>
#include <tensorpull/testing/conformance/detail/stream_transfers.hpp>

namespace tensorpull::testing {

/// Runs all checks on the caller's thread. `connect` is called for each of them, some hundred times. A call of the
/// stream that never returns hangs the check. Throws only what the stream, `connect` or the heap throws. Print the
/// report, or look up one number.
template <stream_factory Connect>
conformance_report check_byte_stream(Connect connect, const conformance_options& options = {}) {
  return detail::reported([&](conformance_report& report) {
    detail::stream_probe<Connect> probe(connect, options, report);
    detail::stream_requirements<Connect>(probe).run();
    detail::stream_transfers<Connect>(probe).run();
  });
}

}  // namespace tensorpull::testing
