// A result as a test's condition: if it is not as expected, its error is printed.
#pragma once

#include "words.hpp"

#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/core/describe.hpp>
#include <tensorpull/core/result.hpp>

#include <gtest/gtest.h>

namespace test {

/// There is a value.
template <class T>
testing::AssertionResult succeeded(const tp::result<T>& r) {
  if (r) return testing::AssertionSuccess();
  return testing::AssertionFailure() << describe(r.error()).view() << ' ';
}
/// A pull's outcome is `completed`.
inline testing::AssertionResult completed(const tp::result<tp::receipt>& r) {
  if (!r || r->outcome == tp::outcome::completed) return succeeded(r);
  return testing::AssertionFailure() << to_string(r->outcome) << ' ';
}
/// The same, and its owner has answered the confirmation.
inline testing::AssertionResult confirmed(const tp::result<tp::receipt>& r) {
  if (!r || r->confirmed) return completed(r);
  return testing::AssertionFailure() << to_string(r->unconfirmed_because) << ' ';
}
/// The error's code; errc{} if there is a value.
template <class T>
errc code_of(const tp::result<T>& r) {
  return r ? errc{} : r.error().code;
}

}  // namespace test
