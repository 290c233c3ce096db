// Lengths of chunks that cannot be.
// One line more than five: a policy refuses its own arguments, so the pipeline that names it stands between.
// WITHIN_LINES: 6
// MAX_ERRORS: 3
#include "model.hpp"

// CASE adaptive_bounds_swapped
// EXPECT: tensorpull: adaptive_bytes<Min, Max> needs a positive Min that is at most Max
pipeline<raw_tensors<mlp>, adaptive_bytes<64_KiB, 4_KiB>, tcp>::model_type model;

// CASE chunk_of_odd_length
// EXPECT: tensorpull: fixed_bytes<N> needs a multiple of 8, since frames are padded to words of 8 bytes
pipeline<raw_tensors<mlp>, fixed_bytes<1001>, loopback>::model_type model;

// CASE chunk_of_zero_bytes
// EXPECT: tensorpull: fixed_bytes<N> needs a positive N; use `whole` to send the image in one frame
pipeline<raw_tensors<mlp>, fixed_bytes<0>, loopback>::model_type model;

// CASE chunk_too_large
// EXPECT: tensorpull: fixed_bytes<N> allows at most 536870904 bytes, the most that one Cap'n Proto frame carries
pipeline<raw_tensors<mlp>, fixed_bytes<512_MiB>, loopback>::model_type model;

// CASE maximum_of_zero_bytes
// EXPECT: tensorpull: bytes_up_to<Max> needs a positive maximum
pipeline<raw_tensors<mlp>, bytes_up_to<0>, loopback>::model_type model;

// CASE per_tensor_too_large
// EXPECT: tensorpull: per_tensor<Max> allows at most 536870904 bytes
pipeline<raw_tensors<mlp>, per_tensor<1_GiB>, loopback>::model_type model;
