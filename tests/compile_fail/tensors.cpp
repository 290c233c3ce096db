// Tensor policies that lack something.
#include "model.hpp"

struct mine : raw_tensors<mlp> {
  // CASE tensors_destination_of_another_type
  // EXPECT: tensorpull: a tensor policy gives where to land (requirement 5)
  static float* destination(mlp& m) noexcept { return m.b; }
  // CASE tensors_source_that_throws
  // EXPECT: tensorpull: a tensor policy gives what to read (requirement 4)
  static source_view source(const mlp& m) { return raw_tensors<mlp>::source(m); }
  // CASE tensors_static_without_schema
  // EXPECT: tensorpull: a tensor policy says whether its schema is constant (requirement 3)
  void schema() = delete;
  // CASE tensors_with_landed
  // EXPECT: tensorpull: nothing calls landed(model) of a tensor policy (requirement 6)
  static void landed(mlp& m) noexcept { m.b[0] = 0; }
  // CASE tensors_without_is_static
  // EXPECT: tensorpull: a tensor policy says whether its schema is constant (requirement 3)
  void is_static() = delete;
  // EACH ENDS WITH
};
pipeline<mine, fixed_bytes<1_KiB>, loopback>::model_type model;
