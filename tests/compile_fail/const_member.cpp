// A member that a transfer could not write.
// EXPECT: tensorpull: a member of the model is neither a scalar, an array of scalars nor an adapted struct, or it is const
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include <tensorpull/tensorpull.hpp>

struct fixed {
  const float w[4]{};
};
BOOST_HANA_ADAPT_STRUCT(fixed, w);

const auto& schema = tensorpull::raw_tensors<fixed>::schema();
