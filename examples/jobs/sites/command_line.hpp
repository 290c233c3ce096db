// The options of the examples with several sites.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace sites {

struct options {
  std::uint32_t sites = 5;
  std::uint32_t rounds = 8;
  std::uint64_t seed = 1;
  std::uint32_t images = 3000;
  std::string data;
};

inline constexpr const char* options_help =
    "  --sites N    processes that train, 3 to 8 (5)\n"
    "  --rounds N   rounds of training and exchange, 1 to 100 (8)\n"
    "  --seed N     of digits, models and training (1)\n"
    "  --images N   made-up digits, of which 1,000 are held out, 1200 to 100000 (3000)\n"
    "  --data FILE  handwritten digits as examples/run.sh fetches them; otherwise made-up ones\n"
    "  --help\n\n"
    "Status: 0 it went well, 1 something failed, 2 a wrong option.\n";

/// Reads the options. Prints the help and exits with 0, or an error and exits with 2.
inline options parse_options_or_exit(int count, char** arguments, const char* purpose) {
  options chosen;
  const auto refuse = [&](std::string_view what) {
    std::fprintf(stderr, "%s: not valid: %.*s; --help lists the options\n", arguments[0], static_cast<int>(what.size()),
                 what.data());
    std::exit(2);
  };
  const auto number = [&](std::string_view text, std::uint64_t least, std::uint64_t most) {
    std::uint64_t n = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (failed != std::errc{} || end != text.data() + text.size() || n < least || n > most) refuse(text);
    return n;
  };
  for (int i = 1; i < count; ++i) {
    const std::string_view name = arguments[i];
    if (name == "--help" || name == "-h") {
      std::printf("usage: %s [options]\n%s\n\n%s", arguments[0], purpose, options_help);
      std::exit(0);
    }
    if (i + 1 == count) refuse(name);
    const std::string_view value = arguments[++i];
    if (name == "--sites") chosen.sites = static_cast<std::uint32_t>(number(value, 3, 8));
    else if (name == "--rounds") chosen.rounds = static_cast<std::uint32_t>(number(value, 1, 100));
    else if (name == "--seed") chosen.seed = number(value, 0, ~std::uint64_t{0});
    else if (name == "--images") chosen.images = static_cast<std::uint32_t>(number(value, 1200, 100'000));
    else if (name == "--data") chosen.data = value;
    else refuse(name);
  }
  return chosen;
}

}  // namespace sites
