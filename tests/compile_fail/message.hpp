// The beginning of nearly every wrong message.
#pragma once

#include "model.hpp"

#include <tensorpull/messages/tensor_decomposer.hpp>

#include <optional>
#include <vector>

using net = pipeline<raw_tensors<mlp>, fixed_bytes<64>, loopback>;
