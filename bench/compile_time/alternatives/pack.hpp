// A model that derives from each of its tensors, walked by expanding the pack of its bases.
#pragma once

#include "image_table.hpp"

#include <array>

template <class... Tensors>
struct pack : Tensors... {};

template <class... Tensors>
image_table table_of(const pack<Tensors...>& model) {
  image_table table;
  auto add = [&]<class Tensor>(const Tensor& tensor) {
    table.add(Tensor::name, "F32", {tensor.data.size()}, tensor.data.data(), sizeof tensor.data);
    return 0;
  };
  // not a fold: clang refuses one of more than 256 operands
  const int in_order[] = {add(static_cast<const Tensors&>(model))...};
  static_cast<void>(in_order);
  table.arrange();
  return table;
}
