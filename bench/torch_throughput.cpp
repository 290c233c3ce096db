// A torch state dict of 1 GiB in 16 tensors on TCP over loopback, two processes: beside a struct of the same bytes in
// the same rounds.
#include "measure.hpp"

#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/torch/torch.hpp>
#include <tensorpull/tensors/torch/torch_state.hpp>
#include <tensorpull/transports/host/owner.hpp>

#include <ATen/ops/full.h>

#include <cstring>
#include <map>
#include <optional>
#include <stop_token>

using namespace tensorpull;

struct block {
  std::array<std::array<float, 4096>, 4096> w;
};
struct model {
  std::array<block, 16> layers;
};
BOOST_HANA_ADAPT_STRUCT(block, w);
BOOST_HANA_ADAPT_STRUCT(model, layers);

using raw = pipeline<raw_tensors<model>, fixed_bytes<2_MiB>, tcp>;
using torch_net = pipeline<torch_tensors, fixed_bytes<2_MiB>, tcp>;

static std::map<std::string, at::Tensor> state_dict(float value) {
  std::map<std::string, at::Tensor> dict;
  for (int i = 0; i < 16; ++i) dict["layers." + std::to_string(i) + ".w"] = at::full({4096, 4096}, value);
  return dict;
}

struct hello {
  std::uint16_t port;
  reference raw_ref, torch_ref, transposed_ref;
};

static void send_models(int out) {
  const auto struct_model = make_model<model>();
  std::memset(struct_model->get(), 1, sizeof(model));
  const auto dict = torch_model::make(state_dict(1));
  std::map<std::string, at::Tensor> turned;
  for (auto& [name, tensor] : state_dict(1)) turned[name] = tensor.t();
  const auto transposed = torch_model::make(turned);
  auto owner = torch_net::downloader::open();
  hello h{};
  h.port = owner->port();
  h.raw_ref = *owner->add_image(raw_tensors<model>::source(**struct_model));
  h.torch_ref = *owner->add_tensors(*dict);
  h.transposed_ref = *owner->add_tensors(*transposed);
  bench::write_value(out, h);
  owner->run(std::stop_token{});
}

int main(int count, char** arguments) {
  const int rounds = count > 1 ? std::atoi(arguments[1]) : 9;
  constexpr double gib = double(sizeof(model)) / double(1_GiB);
  bench::child sender(&send_models);
  const auto h = sender.read<hello>();
  const auto to_struct = make_model<model>();
  std::memset(to_struct->get(), 2, sizeof(model));
  auto to_dict = *torch_model::make_writable(state_dict(2));
  const std::string address = "127.0.0.1:" + std::to_string(h.port);
  auto raw_session = *raw::session::connect(address);
  auto torch_session = *torch_net::session::connect(address);
  const auto must = [](const auto& r) {
    if (!r) {
      std::fprintf(stderr, "a transfer failed: %s\n", describe(r.error()).c_str());
      std::abort();
    }
  };
  const auto other = [&](auto f) {
    return [&sender, f] {
      const double cpu = sender.cpu();
      f();
      return sender.cpu() - cpu;
    };
  };
  const auto results = bench::interleave(
      rounds,
      {
          {"struct into struct", other([&] { must(raw_session.download_tensors(h.raw_ref, **to_struct)); })},
          {"state dict into state dict", other([&] { must(torch_session.download_tensors(h.torch_ref, to_dict)); })},
          {"state dict into a new state dict", other([&] {
             new_state_dict made({.max_bytes = 1_GiB});
             must(torch_session.pull(h.torch_ref, made));
           })},
          {"transposed, into state dict",
           other([&] { must(torch_session.download_tensors(h.transposed_ref, to_dict)); })},
      });
  const double base = bench::summarise(results[0].seconds).median;
  std::printf("1 GiB in 16 tensors, TCP over loopback, chunks of 2 MiB, digest of the whole, %d rounds\n", rounds);
  std::printf("%-34s %8s %8s %8s %8s %10s\n", "", "GiB/s", "min", "max", "ratio", "CPU s/GiB");
  for (const auto& r : results) {
    const auto s = bench::summarise(r.seconds), c = bench::summarise(r.cpu);
    std::printf("%-34s %8.2f %8.2f %8.2f %8.3f %10.3f\n", r.name.c_str(), gib / s.median, gib / s.maximum,
                gib / s.minimum, base / s.median, c.median / gib);
  }
}
