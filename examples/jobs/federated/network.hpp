// The pipeline that the server and the clients use, and the messages between them.
#pragma once

#include "options.hpp"
#include "perceptron.hpp"
#include "round_report.hpp"

#include <tensorpull/consumers/average/weighted_average.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/transports/host/host.hpp>

#include <csignal>
#include <cstring>
#include <optional>
#include <string>

BOOST_HANA_ADAPT_STRUCT(federated::perceptron, hidden_weight, hidden_bias, output_weight, output_bias);

namespace federated {

using tensorpull::error;
using tensorpull::message;
using tensorpull::receipt;
using tensorpull::reference;
using tensorpull::result;

/// The clients of a round publish their updates at the same time. Here they are one process, which needs one reference
/// for each.
struct room_for_participants : tensorpull::default_limits {
  static constexpr std::size_t references = 512;
};

/// Chunks of 64 KiB: the model of 0.4 MB is seven. An average cannot undo an addition, so each chunk has its own
/// digest.
inline constexpr std::uint64_t chunk_bytes = 64 * 1024;
template <class Transport>
using net_over = tensorpull::pipeline<tensorpull::raw_tensors<perceptron>, tensorpull::fixed_bytes<chunk_bytes>,
                                      Transport, tensorpull::chunk_and_image_digest, room_for_participants>;
using net = net_over<tensorpull::tcp>;

/// The kinds of application messages. One connection between the two processes stays open and carries `round` and
/// `figures`; each participant has a connection of its own for `join`, `task` and `update`.
enum letter : std::uint32_t {
  round_begins = 1,  ///< server: the number of participants that must join
  join = 2,          ///< participant: its number
  task = 3,          ///< server: pull this model and train it
  update = 4,        ///< participant: pull my model, trained in this round on so many images
  figures = 5,       ///< clients: the round's connections are closed; the process's figures
};

struct round_message {
  std::uint32_t round;
  std::uint32_t participants;
};
struct join_message {
  std::uint32_t round;
  std::uint32_t client;
};
struct update_message {
  std::uint32_t round;
  std::uint32_t client;
  std::uint32_t images;
};

/// A message's body, if it has the size of a T.
template <class T>
std::optional<T> body_of(const message& m) {
  if (m.body.size() != sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, m.body.data(), sizeof value);
  return value;
}
template <class T>
std::span<const std::byte> as_body(const T& value) {
  return std::as_bytes(std::span<const T, 1>(&value, 1));
}

/// Memory for the connections of the largest round, made at start.
inline tensorpull::host_options host_options_for(std::size_t connections) {
  tensorpull::host_options options;
  options.max_connections = connections + 8;
  options.reserved_connections = connections + 8;
  return options;
}

inline std::string to_text(const address& a) {
  const bool v6 = a.host.find(':') != std::string::npos;
  return (v6 ? "[" + a.host + "]" : a.host) + ":" + std::to_string(a.port);
}

/// Set by Ctrl-C and SIGTERM. Both programs read it several times a second.
inline volatile std::sig_atomic_t interrupted = 0;
inline void stop_on_signals() {
  const auto handler = +[](int) { interrupted = 1; };
  std::signal(SIGINT, handler);
  std::signal(SIGTERM, handler);
}

/// Runs pending events, which releases the memory of closed connections.
inline void settle(tensorpull::event_loop& io) {
  while (io.poll() > 0) {
  }
}

}  // namespace federated
