// The component torch, used alone: its header, its library and nothing else of ours.
#include <tensorpull/tensors/torch/torch.hpp>

#include <ATen/ops/zeros.h>

#include <map>

int main() {
  const auto model = tensorpull::torch_model::make(std::map<std::string, at::Tensor>{{"w", at::zeros({2, 3})}});
  return model && tensorpull::torch_tensors::schema(*model).data_bytes() == 24 ? 0 : 1;
}
