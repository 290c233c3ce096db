// The command line that the server and the clients share; each ignores what only the other needs.
#pragma once

#include "option_values.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

namespace federated {

struct options {
  std::uint32_t rounds = 45;
  std::uint32_t clients = 500;
  /// 0: as the participants file says.
  std::uint32_t fixed = 0;
  std::uint64_t seed = 1;
  double learning_rate = 0.3;
  std::string participants;
  std::string data;
  std::string json;
  std::string plot;
  std::string port_file;
  std::string ca, cert, key;
  address listen{"127.0.0.1", 0};
  address connect{"127.0.0.1", 8002};
  bool help = false;
};

inline constexpr std::string_view options_help =
    "  --rounds N           rounds of federated averaging (45)\n"
    "  --clients N          clients that share the 4,000 training images, 1 to 4000 (500)\n"
    "  --fixed N            N participants in each round; otherwise as the participants file says\n"
    "  --participants FILE  numbers of participants, one for each round; a longer run starts over\n"
    "  --seed N             seed of shuffling, model and choice of participants (1)\n"
    "  --learning-rate X    of the clients' local training, above 0 and at most 10 (0.3)\n"
    "  --json FILE          write settings, rounds and verdict as JSON\n"
    "  --plot FILE          write memory, threads and accuracy as SVG\n"
    "  --data FILE          the digits, mnist_5k.csv\n"
    "  --listen HOST:PORT   where the server listens, port 0: any free one (127.0.0.1:0)\n"
    "  --connect HOST:PORT  where the clients find the server (127.0.0.1:8002)\n"
    "  --port-file FILE     the server writes its port there once it listens\n"
    "  --ca FILE            over TLS: authorities that the server's certificate is of, in PEM (the system's)\n"
    "  --cert FILE          over TLS: the clients' certificate, for a server that wants one\n"
    "  --key FILE           over TLS: its key\n"
    "  --help               show this\n";

namespace detail {

inline void set_option(options& chosen, std::string_view name, std::string_view value) {
  constexpr std::uint64_t any = ~std::uint64_t{0};
  if (name == "--rounds") chosen.rounds = parse_number<std::uint32_t>(name, value, 1, 100'000);
  else if (name == "--clients") chosen.clients = parse_number<std::uint32_t>(name, value, 1, 4'000);
  else if (name == "--fixed") chosen.fixed = parse_number<std::uint32_t>(name, value, 1, 4'000);
  else if (name == "--seed") chosen.seed = parse_number<std::uint64_t>(name, value, 0, any);
  else if (name == "--learning-rate") chosen.learning_rate = parse_rate(name, value);
  else if (name == "--participants") chosen.participants = parse_path(name, value);
  else if (name == "--data") chosen.data = parse_path(name, value);
  else if (name == "--json") chosen.json = parse_path(name, value);
  else if (name == "--plot") chosen.plot = parse_path(name, value);
  else if (name == "--port-file") chosen.port_file = parse_path(name, value);
  else if (name == "--ca") chosen.ca = parse_path(name, value);
  else if (name == "--cert") chosen.cert = parse_path(name, value);
  else if (name == "--key") chosen.key = parse_path(name, value);
  else if (name == "--listen") chosen.listen = parse_address(name, value, 0);
  else if (name == "--connect") chosen.connect = parse_address(name, value, 1);
  else throw option_error("there is no option " + std::string(name) + "; --help lists them");
}

}  // namespace detail

/// Reads `--name value` and `--name=value`; the last of a repeated option counts. Throws option_error.
inline options parse_options(std::span<const char* const> arguments) {
  options chosen;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      chosen.help = true;
      continue;
    }
    if (!argument.starts_with("--"))
      throw option_error("'" + std::string(argument) + "' is no option; --help lists them");
    const std::size_t equals = argument.find('=');
    if (equals != argument.npos) {
      detail::set_option(chosen, argument.substr(0, equals), argument.substr(equals + 1));
    } else {
      const bool last = i + 1 == arguments.size();
      detail::set_option(chosen, argument, last ? std::string_view{} : std::string_view{arguments[++i]});
    }
  }
  if (chosen.fixed > chosen.clients)
    throw option_error("--fixed " + std::to_string(chosen.fixed) + " is more than the " +
                       std::to_string(chosen.clients) + " clients");
  return chosen;
}

/// For main(): prints the help and leaves with 0, or what is wrong and leaves with 2.
inline options parse_options_or_exit(int count, const char* const* arguments, std::string_view purpose) {
  const char* program = count > 0 ? arguments[0] : "federated";
  try {
    options chosen = parse_options(std::span{arguments, static_cast<std::size_t>(count)}.subspan(count > 0 ? 1 : 0));
    if (!chosen.help) return chosen;
    std::printf("usage: %s [options]\n%.*s\n\n%s", program, static_cast<int>(purpose.size()), purpose.data(),
                options_help.data());
    std::exit(0);
  } catch (const option_error& wrong) {
    std::fprintf(stderr, "%s: %s\n", program, wrong.what());
    std::exit(2);
  }
}

}  // namespace federated
