// What steps in 4 bits left out, and a step in the 8 bits that narrowed<T> has if nobody says others.
// EXPECT: tensorpull: narrowed<T, Scheme>::make(now, base, left) changes now, which is not const, and left is an error_feedback<Scheme> of the same scheme
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "compile_fail/model.hpp"

#include <tensorpull/satellites/differences/narrowed.hpp>

mlp now, base;
error_feedback<> left;
auto step = narrowed<raw_tensors<mlp>>::make(now, base, left);
