// Writes the digits that lie in the device's flash: reads the CSV file of the main job, deals it as everybody does,
// pools it, and writes one file.
#include "pooled.hpp"

#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <string>

int main(int count, char** arguments) {
  using namespace microcontroller;
  if (count != 4) {
    std::fprintf(stderr, "usage: %s DIGITS.csv SEED OUT\nThe partition of the device's flash that has its digits.\n",
                 arguments[0]);
    return 2;
  }
  try {
    const pooled_digits digits(arguments[1],
                               federated::parse_number<std::uint64_t>("the seed", arguments[2], 0, ~std::uint64_t{0}));
    std::string bytes;
    for (const auto part : {digits.held_out(), digits.of_site(device_site)})
      bytes.append(reinterpret_cast<const char*>(part.data()), part.size_bytes());
    const digits_header header{digits_header::expected_magic, static_cast<std::uint32_t>(digits.held_out().size()),
                               static_cast<std::uint32_t>(digits.of_site(device_site).size()),
                               digits_checksum(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size())};
    static_assert(std::endian::native == std::endian::little);
    std::ofstream out(arguments[3], std::ios::binary);
    out.write(reinterpret_cast<const char*>(&header), sizeof header)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!out.flush()) throw std::runtime_error("cannot write " + std::string(arguments[3]));
    if (sizeof header + bytes.size() > digits_bytes)
      throw std::runtime_error("the digits do not fit the device's flash");
    return 0;
  } catch (const std::exception& wrong) {
    std::fprintf(stderr, "%s: %s\n", arguments[0], wrong.what());
    return 1;
  }
}
