// Digits for sites that have different classes of them. The classes are dealt into as many groups as there are sites;
// site k has group k and, if wanted, the next ones.
#pragma once

#include "command_line.hpp"

#include "jobs/federated/digits.hpp"

namespace sites {

using federated::digit;

/// Images that are noisy copies of ten random patterns. The same seed gives the same images on every machine.
inline std::vector<digit> made_up_digits(std::size_t count, std::uint64_t seed) {
  constexpr std::size_t pixels = federated::digit_pixels, classes = federated::digit_classes;
  federated::training_random random{federated::derived_seed(seed, 11)};
  std::array<std::array<std::uint8_t, pixels>, classes> patterns{};
  for (auto& pattern : patterns)
    for (std::uint8_t& p : pattern) p = random.below(5) == 0 ? 220 : 0;
  std::vector<digit> made(count);
  for (std::size_t i = 0; i < count; ++i) {
    made[i].label = static_cast<std::uint8_t>(i % classes);
    for (std::size_t k = 0; k < pixels; ++k) {
      const bool kept = random.below(3) != 0;
      made[i].pixels[k] = static_cast<std::uint8_t>(kept ? patterns[made[i].label][k] : random.below(200));
    }
  }
  return made;
}

/// The digits of all sites. Each process deals them in the same way.
class digits_of_sites {
 public:
  /// Throws std::runtime_error if the file is not as expected. `groups`: how many groups each site has.
  explicit digits_of_sites(const options& chosen, std::size_t groups = 1)
      : dealt_(chosen.data.empty() ? made_up_digits(chosen.images, chosen.seed) : federated::load_digits(chosen.data),
               1, chosen.seed),
        sites_(chosen.sites), groups_(groups) {}

  bool knows(std::size_t site, unsigned label) const { return (label + sites_ - site) % sites_ < groups_; }
  std::vector<digit> training(std::size_t site) const { return those_of(site, dealt_.training()); }
  /// Held out, of the site's own classes.
  std::vector<digit> own_test(std::size_t site) const { return those_of(site, dealt_.held_out()); }
  /// Held out, of all classes. Only a part, because every site classifies it twice a round.
  std::span<const digit> test() const { return dealt_.held_out().first(400); }

 private:
  std::vector<digit> those_of(std::size_t site, std::span<const digit> all) const {
    std::vector<digit> own;
    for (const digit& d : all)
      if (knows(site, d.label)) own.push_back(d);
    return own;
  }
  federated::dealt_digits dealt_;
  std::size_t sites_, groups_;
};

}  // namespace sites
