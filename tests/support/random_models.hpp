// Models from seeds, for laws that have to hold for every model: what arrives is what was published.
#pragma once

#include "../image/random_image.hpp"
#include "models.hpp"

#include <cstdlib>
#include <set>
#include <string>

namespace test {

/// How many seeds a test of laws tries, and the first one: `TENSORPULL_MODEL_SEEDS`, `TENSORPULL_MODEL_FIRST`.
struct model_seeds {
  std::uint64_t first = number("TENSORPULL_MODEL_FIRST", 1);
  std::uint64_t count;
  explicit model_seeds(std::uint64_t usual) : count(number("TENSORPULL_MODEL_SEEDS", usual)) {}

 private:
  static std::uint64_t number(const char* variable, std::uint64_t otherwise) {
    const char* const text = std::getenv(variable);
    return text != nullptr && *text != '\0' ? std::strtoull(text, nullptr, 10) : otherwise;
  }
};

/// What a random model is drawn from.
struct model_plan {
  std::size_t most_tensors = 200;
  std::uint64_t most_bytes = 100'000;  ///< of all tensors, about
  std::uint64_t threshold = 64;  ///< of half of the models many tensors have about so many bytes, of the others 64
  bool tame = false;  ///< only dtypes that can be averaged, and values of which the average of one is the same bits
};

/// 1 to most_tensors tensors of every dtype, many of them small, empty or scalars, some of about `threshold` bytes;
/// names like those of layers, names with everything that JSON escapes, and names of up to 1,024 bytes; up to three
/// pairs of metadata. The same seed gives the same model.
class drawn_model {
 public:
  drawn_model(generator& random, const model_plan& plan) {
    const std::uint64_t kinds[] = {1, 2, 8, 40, plan.most_tensors};
    const std::uint64_t most = kinds[random.below(std::size(kinds))];
    const std::size_t count = 1 + random.below(std::min<std::uint64_t>(most, plan.most_tensors));
    const bool long_names = random.below(4) == 0;
    const std::uint64_t kind_of_names = random.below(8);  // 4 and above: each name is of any kind
    const std::uint64_t about = random.below(2) == 0 ? 64 : plan.threshold;
    std::uint64_t bytes = 0;
    while (names_.size() < count) {
      std::string name = random_name_like(random, kind_of_names, long_names);
      dtype type = static_cast<dtype>(random.below(tp::dtype_count));
      while (plan.tame && !averages(type)) type = static_cast<dtype>(random.below(tp::dtype_count));
      std::vector<std::uint64_t> shape = random_shape(random, type, bytes > plan.most_bytes ? 8 : about,
                                                      bytes > plan.most_bytes);
      const auto size = tp::size_bytes(type, shape);
      if (!size || !names_.insert(name).second) continue;
      bytes += *size;
      made_.add(std::move(name), type, std::move(shape), random.below(3));
    }
    std::vector<tp::metadata_entry> pairs;
    std::set<std::string> keys;
    for (std::uint64_t n = random.below(4); n > 0; --n)
      if (const auto [key, fresh] = keys.insert(random_name_like(random, 0, false)); fresh)
        pairs.push_back({*key, *key});
    made_.ready(pairs).fill(random());
    if (plan.tame) tame();
  }

  model& get() { return made_; }
  const model& get() const { return made_; }

  /// Whether an average takes this dtype.
  static bool averages(dtype type) {
    const auto name = tp::to_string(type);
    return type != dtype::boolean && tp::bits(type) % 8 == 0 && name != "F8_E8M0";
  }

 private:
  static std::string random_name_like(generator& random, std::uint64_t kind, bool long_names) {
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random.below(n)); };
    std::string name;
    switch (kind < 4 ? kind : random.below(4)) {
      case 0: name = tp::test::random_name(below); break;
      case 1:
        name = "layers." + std::to_string(random.below(100)) + (random.below(2) == 0 ? ".weight" : ".bias");
        break;
      case 2: name = "t" + std::to_string(random.below(1000)); break;
      default:
        name = "base_model.model.layers." + std::to_string(random.below(100)) + ".self_attn.q_proj.lora_" +
               "AB"[random.below(2)] + ".weight";
    }
    if (long_names && random.below(3) == 0) name.resize(std::min<std::size_t>(1024, name.size() + below(1024)), 'n');
    return name;
  }
  static std::vector<std::uint64_t> random_shape(generator& random, dtype type, std::uint64_t threshold, bool small) {
    const std::uint64_t elements = std::max<std::uint64_t>(threshold * 8 / tp::bits(type), 1);
    switch (random.below(6)) {
      case 0: return {};
      case 1: return {random.below(3), random.below(4)};
      case 2: return {elements - 1 + random.below(3)};
      case 3: return {small ? 3 : 1 + random.below(4 * elements), 1 + random.below(2)};
      case 4: return {1, 8, 1 + random.below(5)};
      default: return {8 * random.below(4)};
    }
  }
  /// Integers become small, and floating-point numbers finite and not negative.
  void tame() {
    const auto to = made_.destination();
    for (std::size_t i = 0; i < to.schema->tensor_count; ++i) {
      const tp::tensor_entry& t = to.schema->tensors[i];
      const auto name = tp::to_string(t.type);
      const bool floating = name[0] == 'F' || name[0] == 'B' || name[0] == 'C';
      const std::size_t width = std::max<std::size_t>(tp::number_bytes(t.type), 1);
      for (std::size_t k = 0; k < t.size_bytes(); ++k) {
        std::byte& b = to.address(i)[k];
        if (floating) b &= k % width == width - 1 ? std::byte{0x3f} : std::byte{0xff};
        else b &= k % width == 0 ? std::byte{0x7f} : std::byte{0};
      }
    }
  }

  std::set<std::string> names_;
  model made_;
};

}  // namespace test
