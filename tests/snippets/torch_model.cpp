// NEEDS tensorpull::torch
#include "context.hpp"

#include <tensorpull/tensors/torch/torch.hpp>
#include <tensorpull/tensors/torch/torch_state.hpp>

#include <torch/nn.h>

int main() {
  const torch::nn::Linear module(4, 3);
  serving_owner<pipeline<torch_tensors, fixed_bytes<2_MiB>, tcp>> serving;
  auto* const owner = &serving.owner();
  const std::string address = serving.address();

  // SNIPPET

  must(done.has_value() && pulled.has_value() && state.has_value() && state->size() == 2);
}
