// A step that is to nothing.
// EXPECT: tensorpull: narrowed<T>::make(now, base) has no base here: a difference to what the other side has is narrowed
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "compile_fail/model.hpp"

#include <tensorpull/satellites/differences/narrowed.hpp>

mlp now;
auto step = narrowed<raw_tensors<mlp>>::make(now);
