// Checks whether an event loop can wait for a user's stream, and accept connections from a user's listener.
#pragma once

#include <tensorpull/testing/conformance/detail/pollable_requirements.hpp>
#include <tensorpull/testing/conformance/detail/reported.hpp>

namespace tensorpull::testing {

/// Runs the checks of a pollable_stream on the caller's thread. `connect` as for check_byte_stream, which the stream
/// has to pass, too; its ends need not be established. Requirement 1 is that check.
template <stream_factory Connect>
  requires pollable_stream<typename detail::stream_probe<Connect>::stream>
conformance_report check_pollable_stream(Connect connect, const conformance_options& options = {}) {
  return detail::reported([&](conformance_report& report) {
    detail::stream_probe<Connect> probe(connect, options, report);
    detail::pollable_requirements<Connect>(probe).run();
  });
}

/// Runs the checks of a stream_listener on the caller's thread. `listen() -> result<L>` makes a listener, and
/// `reach(L&) -> result<S>` a connection to it. For one of the checks the process has no descriptors for a moment, so
/// no other thread may need one.
template <class Listen, class Reach>
conformance_report check_stream_listener(Listen listen, Reach reach, const conformance_options& options = {}) {
  using listener = typename std::invoke_result_t<Listen&>::value_type;
  using stream = typename std::invoke_result_t<Reach&, listener&>::value_type;
  static_assert(stream_listener<listener, stream>);
  const auto both_ends = [&]() -> result<stream_pair<stream>> {
    auto l = listen();
    if (!l) return failure(l.error());
    auto near = reach(*l);
    if (!near) return failure(near.error());
    for (auto end = std::chrono::steady_clock::now() + options.patience;;) {
      auto far = l->accept();
      if (far) return stream_pair<stream>{std::move(*near), std::move(*far)};
      if (far.error().code != errc::timed_out || std::chrono::steady_clock::now() > end) return failure(far.error());
      tensorpull::detail::pause(std::chrono::milliseconds(1));
    }
  };
  return detail::reported([&](conformance_report& report) {
    detail::stream_probe<const decltype(both_ends)> probe(both_ends, options, report);
    detail::listener_requirements<Listen, Reach, const decltype(both_ends)>(probe, listen, reach).run();
  });
}

}  // namespace tensorpull::testing
