// A model as a std::tuple of named tensors, walked by recursion over the index.
#pragma once

#include "image_table.hpp"

#include <algorithm>
#include <array>
#include <tuple>

template <std::size_t N>
struct tensor_name {
  char text[N];
  constexpr tensor_name(const char (&from)[N]) { std::copy_n(from, N, text); }
};

template <tensor_name Name, class T, std::size_t N>
struct named_tensor {
  static constexpr const char* name = Name.text;
  std::array<T, N> data;
};

template <std::size_t I = 0, class... Tensors>
void add_tensors(const std::tuple<Tensors...>& model, image_table& table) {
  if constexpr (I < sizeof...(Tensors)) {
    const auto& tensor = std::get<I>(model);
    table.add(tensor.name, "F32", {tensor.data.size()}, tensor.data.data(), sizeof tensor.data);
    add_tensors<I + 1>(model, table);
  }
}

template <class... Tensors>
image_table table_of(const std::tuple<Tensors...>& model) {
  image_table table;
  add_tensors(model, table);
  table.arrange();
  return table;
}
