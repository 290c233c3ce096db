// Types that are no narrowed difference.
#include "compile_fail/model.hpp"

#include <tensorpull/satellites/differences/narrowed.hpp>

// CASE narrowed_weights
// EXPECT: tensorpull: narrowed<T> is no tensor policy: a difference to what the other side has is narrowed, and weights are not
pipeline<narrowed<raw_tensors<mlp>>, fixed_bytes<1_KiB>, loopback>::model_type model;

// CASE narrowed_with_what_another_scheme_left
// EXPECT: tensorpull: narrowed<T, Scheme>::make(now, base, left) changes now, which is not const, and left is an error_feedback<Scheme> of the same scheme
mlp now, base;
error_feedback<> left;
auto step = narrowed<raw_tensors<mlp>>::make(now, base, left);

// CASE narrowed_without_base
// EXPECT: tensorpull: narrowed<T>::make(now, base) has no base here: a difference to what the other side has is narrowed
mlp now;
auto step = narrowed<raw_tensors<mlp>>::make(now);
