// A member of a small machine's model that leads elsewhere.
// EXPECT: tensorpull: a member of the model is neither a scalar, an array of scalars nor a struct that has members_of, or it is const
// WITHIN_LINES: 8
// MAX_ERRORS: 3
// MAX_LINES: 30
#include <tensorpull/embedded/recipient.hpp>

struct mlp {
  float* w;
};
template <>
inline constexpr auto tensorpull::members_of<mlp> = tensorpull::members(tensorpull::member{"w", &mlp::w});

constexpr auto n = tensorpull::embedded_image<mlp>::image_bytes;
