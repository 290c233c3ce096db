// What nearly every wrong use begins with: the library, and a model that is right.
#pragma once

#include <tensorpull/tensorpull.hpp>

using namespace tensorpull;

struct mlp {
  float w[4][3], b[4];
};
BOOST_HANA_ADAPT_STRUCT(mlp, w, b);
