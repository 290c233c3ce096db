// TCP of lwIP as a transport: the words of every pipeline for a device with a network. It has no owner. raw_tensors
// fills a table at its first use: without -fno-threadsafe-statics the C++ library's guards are linked.
#pragma once

#include <tensorpull/links/lwip/lwip_stream.hpp>
#include <tensorpull/pull/device_pull.hpp>
#include <tensorpull/transports/concept.hpp>

namespace tensorpull {

/// A policy for the transport slot, over the socket functions that a program names (links/lwip). `where` of a pull is
/// whatever their begin_connect() takes. The limits policy names the machine: `using platform = ...`
/// (pull/platform.hpp); its stopped() ends a pull. The pipeline is that of composed_pipeline.hpp, whose integrity
/// policy has to be named, such as basic_image_digest<xxh3_64>.
template <small_sockets Sockets>
struct lwip_tcp : reliable_transport {
  static constexpr std::size_t connection_bytes = 0;
  template <class>
  using downloader = no_session<lwip_tcp>;
  template <class>
  using session = no_session<lwip_tcp>;

  /// Connects, pulls and closes; connects again with what has landed if the connection is lost. Errors: those of
  /// lwip_stream::connect_to and of device_pull_with.
  template <class Parts, class Address, consumer Consumer>
  static result<receipt> pull(const Address& where, const reference& ref, Consumer& to, const pull_options& options,
                              typename Parts::chunking chunking) noexcept {
    const auto connect = [&]() noexcept {
      return lwip_stream<Sockets>::connect_to(where, options.per_request_timeout);
    };
    const auto pause = [](std::chrono::milliseconds time) noexcept {
      bool read = false, write = false;
      Sockets::wait(-1, read, write, static_cast<int>(time.count()));
    };
    return device_pull_with<Parts>(connect, pause, make_request(ref, options), to, options, chunking);
  }
};

}  // namespace tensorpull
