// Is a stream of your own a byte stream as this library needs it? Each numbered requirement of links/byte_stream.hpp is checked, then whole
// transfers through it with what networks do wrong.
#pragma once

#include <tensorpull/testing/conformance/conformance_options.hpp>
#include <tensorpull/testing/conformance/conformance_report.hpp>
#include <tensorpull/testing/conformance/detail/stream_requirements.hpp>
#include <tensorpull/testing/conformance/detail/stream_transfers.hpp>

namespace tensorpull::testing {

/// `connect` is called about 200 times. Takes one thread and a few seconds; a call that waits for ever hangs the check, which is an answer as
/// well. Never throws by itself. Print the report, or look up one number.
template <stream_factory Connect>
conformance_report check_byte_stream(Connect connect, const conformance_options& options = {}) {
  conformance_report report;
  detail::stream_probe<Connect> probe(connect, options, report);
  detail::stream_requirements<Connect>(probe).run();
  detail::stream_transfers<Connect>(probe).run();
  return report;
}

}  // namespace tensorpull::testing
