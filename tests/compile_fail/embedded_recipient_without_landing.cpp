// A recipient of a small machine that was given a model in place of a landing.
// EXPECT: tensorpull: an embedded recipient lands in a landing, such as model_landing<Model>
// WITHIN_LINES: 8
// MAX_ERRORS: 3
// MAX_LINES: 30
#include <tensorpull/embedded/recipient.hpp>

struct mlp {
  float w[3], b[4];
};

mlp model;
tensorpull::embedded_recipient<mlp, 512> recipient(model, {.ref = {1, 2}}, 5);
