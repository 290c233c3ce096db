// The transport of simulated pipelines.
#pragma once

#include <tensorpull/satellites/simulation/simulated_stream.hpp>
#include <tensorpull/transports/concept.hpp>
#include <tensorpull/transports/publisher.hpp>
#include <tensorpull/transports/session/stream_session.hpp>

namespace tensorpull::testing {

/// A policy for the transport slot of a pipeline that is simulated.
struct simulated : reliable_transport {
  using stream = simulated_stream;  ///< one end of a connection
  static constexpr std::size_t connection_bytes = 0;
  template <class Parts>
  using downloader = publisher<Parts>;
  template <class Parts>
  using session = stream_session<Parts, simulated_stream>;
};

}  // namespace tensorpull::testing
