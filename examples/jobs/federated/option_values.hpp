// Reads values of a command line; an error is one sentence.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace federated {

struct address {
  std::string host;
  std::uint16_t port;
};

/// What is wrong with a command line, in one sentence.
struct option_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <typename Number>
Number parse_number(std::string_view name, std::string_view text, Number least, Number most) {
  Number value{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size() || value < least || value > most)
    throw option_error(std::string(name) + " wants a whole number from " + std::to_string(least) + " to " +
                       std::to_string(most) + ", not '" + std::string(text) + "'");
  return value;
}

inline double parse_rate(std::string_view name, std::string_view text) {
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size() || !(value > 0 && value <= 10))
    throw option_error(std::string(name) + " wants a number above 0 and at most 10, not '" + std::string(text) + "'");
  return value;
}

/// HOST:PORT, or [HOST]:PORT if the host has colons, as an IPv6 address has.
inline address parse_address(std::string_view name, std::string_view text, std::uint32_t least_port) {
  const std::size_t colon = text.rfind(':');
  std::string_view host = text.substr(0, colon == text.npos ? 0 : colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (host.empty() || (!bracketed && host.find(':') != host.npos))
    throw option_error(std::string(name) + " wants HOST:PORT, as in 127.0.0.1:8002, not '" + std::string(text) + "'");
  const std::string port_name = std::string(name) + " (the port)";
  const auto port = parse_number<std::uint32_t>(port_name, text.substr(colon + 1), least_port, 65535);
  return {std::string(host), static_cast<std::uint16_t>(port)};
}

inline std::string parse_path(std::string_view name, std::string_view text) {
  if (text.empty()) throw option_error(std::string(name) + " wants the name of a file");
  return std::string(text);
}

}  // namespace federated
