// Standard input and output: of a program that this one starts, or of this program, which another one has started. `ssh
// host send model.safetensors --stdio` is an address.
#pragma once

#include <tensorpull/transports/over/pipe/child_stream.hpp>
#include <tensorpull/transports/over/pipe/command_words.hpp>
#include <tensorpull/transports/over/pipe/pipe_stream.hpp>
#include <tensorpull/transports/over/stream_transport.hpp>

namespace tensorpull {

/// Policy for the transport slot: an address is a command (command_words.hpp), each connection a process that runs it
/// (child_stream.hpp). It has pulls and sessions, and no owner of many connections: the program that is started owns,
/// over its standard_streams. A command that ends is a lost connection, and a pull runs it again as its retries say;
/// error::system has its exit status, as child_stream has it.
struct child_process : stream_transport<child_process, child_stream> {
  static constexpr std::string_view scheme = "pipe";  ///< of its addresses, as in system/link_url.hpp
  /// Runs the command. It does not wait for anything. Errors: bad_address: also for a program that cannot be run, with
  /// errno; connection_failed with errno.
  static result<child_stream> connect(std::string_view command, std::chrono::milliseconds, const stop_token&) noexcept {
    return run(command, {});
  }

  /// As stream_transport::pull. When its stop is requested, a command that does not end at once is ended within 0.1 s.
  template <class Parts, consumer Consumer>
  static result<receipt> pull(std::string_view command, const reference& ref, Consumer& to, const pull_options& options,
                              typename Parts::chunking chunking) noexcept {
    return pull_with<Parts>([&] { return run(command, options.stop); }, &detail::pause, ref, to, options, chunking);
  }

 private:
  static result<child_stream> run(std::string_view command, const stop_token& hurry) noexcept {
    command_words line;
    const auto words = line.split(command);
    if (!words) return failure(words.error());
    return child_stream::start(*words, hurry);
  }
};

/// Policy for the transport slot: the one connection that this program was started with. Its address is "-". The
/// program has a session, in which it owns or pulls; see pipe_stream::standard() for its standard input and output.
struct standard_streams : stream_transport<standard_streams, pipe_stream> {
  static constexpr std::string_view scheme = "pipe";  ///< of its addresses, as in system/link_url.hpp
  /// Errors: bad_address: it is not "-", or there are no pipes; io with errno.
  static result<pipe_stream> connect(std::string_view address, std::chrono::milliseconds, const stop_token&) noexcept {
    if (address != "-") return failure(errc::bad_address, 0, address);
    return pipe_stream::standard();
  }
};

static_assert(transport<child_process> && transport<standard_streams>);

}  // namespace tensorpull
