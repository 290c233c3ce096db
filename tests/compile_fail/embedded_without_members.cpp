// A model of a small machine that nobody has listed.
// EXPECT: tensorpull: the model has no members_of: specialise it next to the struct
// WITHIN_LINES: 8
// MAX_ERRORS: 3
// MAX_LINES: 30
#include <tensorpull/embedded/recipient.hpp>

struct mlp {
  float w[4][3], b[4];
};

constexpr auto n = tensorpull::embedded_image<mlp>::image_bytes;
