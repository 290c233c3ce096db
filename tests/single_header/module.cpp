// The module alone: a model goes from an owner to a recipient in this process. No macro is imported, so the struct
// lists its members. Status 0: every byte landed and was confirmed.
#include <cstring>

import tensorpull;

struct tiny_model {
  float weight[16][8], bias[16];
};
template <>
inline constexpr auto tensorpull::members_of<tiny_model> = tensorpull::members(
    tensorpull::member{"weight", &tiny_model::weight}, tensorpull::member{"bias", &tiny_model::bias});

int main() {
  using namespace tensorpull;
  using net = pipeline<raw_tensors<tiny_model>, fixed_bytes<128>, loopback>;
  tiny_model published{}, mine{};
  for (int i = 0; i < 16; ++i) published.weight[i][i % 8] = published.bias[i] = static_cast<float>(i) - 0.5f;
  net::downloader owner;
  const auto ref = owner.add_tensors(published);
  if (!ref) return 1;
  const auto done = net::download_tensors(owner, *ref, mine);
  if (!done || done->outcome != outcome::completed) return 2;
  return std::memcmp(&published, &mine, sizeof mine) == 0 ? 0 : 3;
}
