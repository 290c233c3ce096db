// Policies that name their slot and nothing else.
#include "model.hpp"

// CASE slot_only_chunking
// EXPECT: tensorpull: a chunking policy has a longest chunk (requirement 2)
struct nothing {
  using is_chunking_policy = void;
};
pipeline<raw_tensors<mlp>, nothing, loopback>::model_type model;

// CASE slot_only_framing
// EXPECT: tensorpull: a framing has memory for one decoded frame's lists (requirement 2)
struct nothing {
  using is_framing_policy = void;
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, nothing>::model_type model;

// CASE slot_only_integrity
// EXPECT: tensorpull: an integrity policy says whether the whole image is checked (requirement 2)
struct nothing {
  using is_integrity_policy = void;
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, nothing>::model_type model;

// CASE slot_only_limits
// EXPECT: tensorpull: a limits policy has each constant of default_limits (requirement 2): derive from default_limits
struct nothing {
  using is_limits_policy = void;
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, nothing>::model_type model;

// CASE slot_only_tensors
// EXPECT: tensorpull: a tensor policy names the type of its models (requirement 2)
struct nothing {
  using is_tensor_policy = void;
};
pipeline<nothing, fixed_bytes<1_KiB>, loopback>::model_type model;

// CASE slot_only_transport
// EXPECT: tensorpull: a transport says how much one frame carries (requirement 2)
struct nothing {
  using is_transport_policy = void;
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, nothing>::model_type model;
