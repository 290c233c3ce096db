// The model of every row: a perceptron of about 4 KiB.
#pragma once

#include <cstddef>
#include <cstdint>

#ifndef CHUNK
#define CHUNK 512
#endif

/// Bytes of one chunk.
inline constexpr std::size_t chunk_bytes = CHUNK;

struct perceptron {
  float hidden_weight[12][72], hidden_bias[12], output_weight[10][12], output_bias[10];
};
