// Is a transport of one's own a byte stream as this library needs it? Each numbered requirement of transports/concept.hpp, then whole
// transfers through it with what networks do wrong.
#pragma once

#include <tensorpull/testing/conformance/detail/stream_requirements.hpp>
#include <tensorpull/testing/conformance/detail/stream_transfers.hpp>

namespace tensorpull::testing {

/// `connect`: as stream_probe says; called about 200 times. One thread, a few seconds; a call that waits for ever hangs the check, which is
/// an answer as well. Print the report, or look a number up.
template <class Connect>
conformance_report check_byte_stream(Connect connect, const conformance_options& options = {}) {
  conformance_report report;
  stream_probe<Connect> probe(connect, options, report);
  stream_requirements<Connect>(probe).run();
  stream_transfers<Connect>(probe).run();
  return report;
}

}  // namespace tensorpull::testing
