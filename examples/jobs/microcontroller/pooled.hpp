// The digits of the main job, pooled and dealt to sites: the device is site 0, the clients are the others. Everybody
// deals them in the same way.
#pragma once

#include "digits_partition.hpp"

#include "jobs/federated/digits.hpp"
#include "jobs/federated/option_values.hpp"

#include <span>
#include <string>
#include <vector>

namespace microcontroller {

inline constexpr std::size_t device_site = 0;
/// The training digits are dealt in so many shares, one for each site that may take part.
inline constexpr std::size_t shares = 10;
/// The accuracy is measured with so many digits of the 1,000 that are held out: as many as the device has room for.
inline constexpr std::size_t measured_digits = 400;

/// The grey value of each pixel is the mean of four.
inline pooled_digit pooled(const federated::digit& from) {
  pooled_digit to{from.label, {}};
  for (std::size_t y = 0; y < 14; ++y)
    for (std::size_t x = 0; x < 14; ++x) {
      const auto* const p = &from.pixels[2 * y * 28 + 2 * x];
      to.pixels[y * 14 + x] = static_cast<std::uint8_t>((p[0] + p[1] + p[28] + p[29] + 2) / 4);
    }
  return to;
}

class pooled_digits {
 public:
  /// Throws std::runtime_error with file and line for anything that is not as expected.
  pooled_digits(const std::string& path, std::uint64_t seed) {
    const federated::dealt_digits dealt(federated::load_digits(path), shares, seed);
    for (const auto& d : dealt.held_out().first(measured_digits)) all_.push_back(pooled(d));
    for (const auto& d : dealt.training()) all_.push_back(pooled(d));
  }

  std::span<const pooled_digit> held_out() const { return std::span(all_).first(measured_digits); }
  /// Site 0 to shares - 1.
  std::span<const pooled_digit> of_site(std::size_t site) const {
    const auto training = std::span(all_).subspan(measured_digits);
    const std::size_t begin = training.size() * site / shares;
    return training.subspan(begin, training.size() * (site + 1) / shares - begin);
  }

 private:
  std::vector<pooled_digit> all_;
};

}  // namespace microcontroller
