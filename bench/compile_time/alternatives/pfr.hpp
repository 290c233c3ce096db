// A plain struct whose members are found by Boost.PFR, without an annotation. It gives no names before Boost 1.84, so
// these stand beside the struct, in the order of its members.
#pragma once

#include "image_table.hpp"

#include <boost/pfr.hpp>

#include <array>

template <class T, std::size_t N>
void add_member(const std::array<T, N>& tensor, const char* const*& name, image_table& table) {
  table.add(*name++, "F32", {N}, tensor.data(), sizeof tensor);
}
template <class Struct>
void add_member(const Struct& part, const char* const*& name, image_table& table) {
  boost::pfr::for_each_field(part, [&](const auto& member) { add_member(member, name, table); });
}

template <class Model>
image_table table_of(const Model& model, const char* const* names) {
  image_table table;
  add_member(model, names, table);
  table.arrange();
  return table;
}
