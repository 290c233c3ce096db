// The participants of each round: how many there are, from a file, and which clients are drawn.
#pragma once

#include "training_random.hpp"

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace federated {

/// The numbers of participants, separated by white space, one for each round. Throws std::runtime_error.
inline std::vector<std::size_t> load_participants(const std::string& path) {
  std::ifstream file{path};
  if (!file) throw std::runtime_error("cannot open the participants file " + path);
  std::vector<std::size_t> participants;
  std::string word;
  while (file >> word) {
    const bool is_number = word.size() <= 6 && word.find_first_not_of("0123456789") == std::string::npos;
    const std::size_t number = is_number ? std::stoul(word) : 0;
    if (number == 0)
      throw std::runtime_error(path + ": number " + std::to_string(participants.size() + 1) +
                               " must be from 1 to 999999, found '" + word.substr(0, 20) + "'");
    participants.push_back(number);
  }
  if (participants.empty()) throw std::runtime_error(path + ": holds no number of participants");
  return participants;
}

/// Draws each round's clients without repetition, from the seed and the round alone: both processes draw the same.
class cohort {
 public:
  cohort(std::size_t clients, std::uint64_t seed) : clients_(clients), seed_{seed} {}

  /// `count` distinct clients (all of them if there are fewer), valid until the next call. Allocates nothing.
  std::span<const std::uint32_t> draw(std::uint32_t round, std::size_t count) {
    std::iota(clients_.begin(), clients_.end(), 0u);
    training_random random{derived_seed(seed_, 4, round)};
    shuffle_front(std::span{clients_}, count, random);
    return std::span{clients_}.first(count < clients_.size() ? count : clients_.size());
  }

 private:
  std::vector<std::uint32_t> clients_;
  std::uint64_t seed_;
};

}  // namespace federated
