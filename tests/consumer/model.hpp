#pragma once

#include <tensorpull/tensorpull.hpp>

struct mlp {
  std::array<std::array<float, 16>, 8> weight;
  std::array<float, 8> bias;
};
BOOST_HANA_ADAPT_STRUCT(mlp, weight, bias);

using net = tensorpull::pipeline<tensorpull::raw_tensors<mlp>, tensorpull::fixed_bytes<256>, tensorpull::loopback>;

/// Defined in other_file.cpp: the same templates, used in both files of one program.
bool pull(net::downloader& from, const tensorpull::reference& ref, mlp& to);
