// The header of the ground floor alone: a model goes from an owner to a recipient in this process, or is pulled from
// the address that is named. Status 0: every byte landed and was confirmed.
#include <tensorpull_ground.hpp>

struct tiny_model {
  float weight[16][8], bias[16];
};
BOOST_HANA_ADAPT_STRUCT(tiny_model, weight, bias);

int main(int count, char** words) {
  using namespace tensorpull;
  tiny_model published{}, mine{};
  if (count > 1)
    return pipeline<raw_tensors<tiny_model>, fixed_bytes<128>, tcp>::download_tensors(words[1], ref_id{1, 2}, mine) ? 0
                                                                                                                    : 1;
  using net = pipeline<raw_tensors<tiny_model>, fixed_bytes<128>, loopback>;
  for (std::size_t i = 0; i < 16; ++i) published.weight[i][i % 8] = published.bias[i] = static_cast<float>(i) - 0.5f;
  net::downloader owner;
  const auto ref = owner.add_tensors(published);
  if (!ref) return 2;
  const auto done = net::download_tensors(owner, *ref, mine);
  if (!done || done->outcome != outcome::completed) return 3;
  return std::memcmp(&published, &mine, sizeof mine) == 0 ? 0 : 4;
}
