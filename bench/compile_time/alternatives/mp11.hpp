// A struct whose members are described by a list of types, each with a name and a pointer, walked by Boost.Mp11.
#pragma once

#include "image_table.hpp"

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include <array>

template <class Members, class Model>
image_table table_of(const Model& model) {
  image_table table;
  boost::mp11::mp_for_each<Members>([&]<class Member>(Member) {
    const auto& tensor = model.*Member::pointer;
    table.add(Member::name, "F32", {tensor.size()}, tensor.data(), sizeof tensor);
  });
  table.arrange();
  return table;
}
