// Two members of a small machine's model under one name.
// EXPECT: tensorpull: two tensors of the model have the same name
// WITHIN_LINES: 8
// MAX_ERRORS: 2
// MAX_LINES: 30
#include <tensorpull/embedded/recipient.hpp>

struct mlp {
  float w[3], b[4];
};
template <>
inline constexpr auto tensorpull::members_of<mlp> = tensorpull::members(tensorpull::member{"w", &mlp::w},
                                                                        tensorpull::member{"w", &mlp::b});

constexpr auto n = tensorpull::embedded_image<mlp>::image_bytes;
