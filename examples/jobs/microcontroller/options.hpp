// The command line of server and clients.
#pragma once

#include "in_8_bits.hpp"
#include "pooled.hpp"
#include "signing.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace microcontroller {

struct options {
  std::uint32_t rounds = 3;
  std::uint32_t clients = 4;
  std::uint64_t seed = 1;
  std::string data, line, connect, port_file, sign;
  bool in_8_bits = false;  // the device's update
};

inline constexpr const char* options_help =
    "  --data FILE       the digits, mnist_5k.csv\n"
    "  --rounds N        rounds of training, 1 to 100 (3)\n"
    "  --clients N       sites besides the device, 1 to 9 (4)\n"
    "  --seed N          of the model, and of who gets which digits (1)\n"
    "  --line TTY        the serial line between server and device, such as /dev/ttyUSB0?speed=115200; the clients' program then plays the device\n"
    "  --update KIND     the device's: whole, or 8-bits, which is a difference to the round's model (whole)\n"
    "  --connect H:PORT  where the clients find the server\n"
    "  --port-file FILE  the server writes its port there once it listens\n"
    "  --sign KEY.pem    the server signs the reference of each model with this private key, for a device that proves what lands\n"
    "  --help\n\n"
    "Status: 0 it went well, 1 something failed, 2 a wrong option.\n";

/// Reads the options. Prints the help and exits with 0, or an error and exits with 2.
inline options parse_options_or_exit(int count, char** arguments, const char* purpose) {
  options chosen;
  try {
    for (int i = 1; i < count; ++i) {
      const std::string_view name = arguments[i];
      if (name == "--help" || name == "-h") {
        std::printf("usage: %s [options]\n%s\n\n%s", arguments[0], purpose, options_help);
        std::exit(0);
      }
      const std::string_view value = i + 1 < count ? arguments[++i] : "";
      if (name == "--rounds") chosen.rounds = federated::parse_number<std::uint32_t>(name, value, 1, 100);
      else if (name == "--clients") chosen.clients = federated::parse_number<std::uint32_t>(name, value, 1, shares - 1);
      else if (name == "--seed")
        chosen.seed = federated::parse_number<std::uint64_t>(name, value, 0, ~std::uint64_t{0});
      else if (name == "--data") chosen.data = federated::parse_path(name, value);
      else if (name == "--line") chosen.line = federated::parse_path(name, value);
      else if (name == "--update" && value == "8-bits" && !has_8_bits)
        throw federated::option_error("this build has no differences, so no update in 8 bits");
      else if (name == "--update" && (value == "whole" || value == "8-bits")) chosen.in_8_bits = value == "8-bits";
      else if (name == "--update") throw federated::option_error("--update is whole or 8-bits");
      else if (name == "--connect") chosen.connect = federated::parse_path(name, value);
      else if (name == "--port-file") chosen.port_file = federated::parse_path(name, value);
      else if (name == "--sign" && !can_sign)
        throw federated::option_error("this build has no proofs, so it signs nothing");
      else if (name == "--sign") chosen.sign = federated::parse_path(name, value);
      else throw federated::option_error("there is no option " + std::string(name) + "; --help lists them");
    }
  } catch (const federated::option_error& wrong) {
    std::fprintf(stderr, "%s: %s\n", arguments[0], wrong.what());
    std::exit(2);
  }
  return chosen;
}

}  // namespace microcontroller
