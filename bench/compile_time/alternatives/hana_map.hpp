// A model as a hana::map from names to tensors, and the table of its image: what Hana's own tutorial suggests for
// "fields by name".
#pragma once

#include "image_table.hpp"

#include <boost/hana.hpp>

#include <array>

template <class Map>
image_table table_of(const Map& model) {
  image_table table;
  boost::hana::for_each(model, [&table](const auto& named) {
    const auto& tensor = boost::hana::second(named);
    table.add(boost::hana::to<const char*>(boost::hana::first(named)), "F32", {tensor.size()}, tensor.data(),
              sizeof tensor);
  });
  table.arrange();
  return table;
}
