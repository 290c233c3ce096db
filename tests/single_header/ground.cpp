// The header of the ground floor alone: a model goes from an owner to a recipient over TCP, on one thread. Status 0:
// every byte landed and was confirmed.
#include <tensorpull_ground.hpp>

#include <thread>

struct tiny_model {
  float weight[16][8], bias[16];
};
BOOST_HANA_ADAPT_STRUCT(tiny_model, weight, bias);

int main() {
  using namespace tensorpull;
  using net = pipeline<raw_tensors<tiny_model>, fixed_bytes<128>, tcp>;
  tiny_model published{}, mine{};
  for (std::size_t i = 0; i < 16; ++i) published.weight[i][i % 8] = published.bias[i] = static_cast<float>(i) - 0.5f;
  auto owner = net::downloader::open("127.0.0.1:0");
  if (!owner) return 1;
  const auto ref = owner->add_tensors(published, {.recipients = 1});
  if (!ref) return 2;
  result<receipt> done = failure(errc::cancelled);
  std::thread recipient([&] {
    std::array<char, 32> where{};
    std::snprintf(where.data(), where.size(), "127.0.0.1:%u", unsigned{owner->port()});
    done = net::download_tensors(where.data(), *ref, mine);
  });
  const bool served = owner->run(until_settled(*ref));
  recipient.join();
  if (!served || !done || done->outcome != outcome::completed) return 3;
  return std::memcmp(&published, &mine, sizeof mine) == 0 ? 0 : 4;
}
