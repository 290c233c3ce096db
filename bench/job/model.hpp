// The models that every program moves: named tensors in one block of memory, filled with a pattern that the other
// process can check.
#pragma once

#include <sys/mman.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

/// Sizes in bytes, each a multiple of 4 (float32). alternatives/job.py makes the same lists.
inline std::vector<std::size_t> tensor_sizes(std::string_view shape, std::size_t bytes, std::size_t tensors) {
  if (shape == "perceptron") return {4 * 784 * 128, 4 * 128, 4 * 128 * 10, 4 * 10};
  std::vector<std::size_t> sizes(tensors, bytes / tensors / 4 * 4);
  if (shape == "mixed") {  // as in real networks: each tensor of eight has a quarter of the one before
    double all = 0;
    for (std::size_t i = 0; i < tensors; ++i) all += std::pow(0.25, static_cast<double>(i % 8));
    for (std::size_t i = 0; i < tensors; ++i)
      sizes[i] = 4 * (1 + static_cast<std::size_t>(static_cast<double>(bytes) *
                                                   std::pow(0.25, static_cast<double>(i % 8)) / all / 4));
  }
  return sizes;
}

enum class pages {
  plain,
  huge,
};

/// Tensors lie one after the other at multiples of 64 bytes, so that a loop that knows nothing of tensors may send the
/// block as it is.
class model {
 public:
  model() = default;
  explicit model(const std::vector<std::size_t>& sizes, pages kind = pages::huge) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      char name[24];
      std::snprintf(name, sizeof name, "t%06zu", i);
      names_.emplace_back(name);
      begins_.push_back(bytes_);
      sizes_.push_back(sizes[i]);
      bytes_ += (sizes[i] + 63) / 64 * 64;
    }
    mapped_ = (bytes_ + huge - 1) / huge * huge + huge;
    void* const p = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) std::abort();
    memory_ = static_cast<std::byte*>(p);
    const auto at = reinterpret_cast<std::uintptr_t>(p);
    block_ = memory_ + (huge - at % huge) % huge;
    ::madvise(memory_, mapped_, kind == pages::huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  }
  model(const model&) = delete;
  model& operator=(const model&) = delete;
  ~model() {
    if (memory_ != nullptr) ::munmap(memory_, mapped_);
  }

  std::size_t count() const { return sizes_.size(); }
  const std::string& name(std::size_t i) const { return names_[i]; }
  std::span<std::byte> tensor(std::size_t i) { return {block_ + begins_[i], sizes_[i]}; }
  std::span<const std::byte> tensor(std::size_t i) const { return {block_ + begins_[i], sizes_[i]}; }
  std::span<std::byte> block() { return {block_, bytes_}; }
  std::span<const std::byte> block() const { return {block_, bytes_}; }
  std::size_t first_tensor_ends_at() const { return sizes_.front(); }

  void fill() {
    for_each_word([](std::uint32_t& word, std::uint32_t expected) { word = expected; });
  }
  bool has_pattern() {
    bool good = true;
    for_each_word([&](std::uint32_t& word, std::uint32_t expected) { good &= word == expected; });
    return good;
  }
  void clear() { std::memset(block_, 0, bytes_); }

 private:
  static constexpr std::size_t huge = std::size_t{2} << 20;
  template <class F>
  void for_each_word(F f) {
    for (std::size_t i = 0; i < count(); ++i) {
      auto* const words = reinterpret_cast<std::uint32_t*>(block_ + begins_[i]);
      const auto first = static_cast<std::uint32_t>(i) * 40503u + 1u;
      for (std::size_t k = 0; k < sizes_[i] / 4; ++k) f(words[k], static_cast<std::uint32_t>(k) * 2654435761u + first);
    }
  }

  std::vector<std::string> names_;
  std::vector<std::size_t> begins_, sizes_;
  std::byte *memory_ = nullptr, *block_ = nullptr;
  std::size_t bytes_ = 0, mapped_ = 0;
};

}  // namespace bench
