// A root without names: an array of scalars.
// EXPECT: tensorpull: a model is a struct adapted with BOOST_HANA_ADAPT_STRUCT
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include <tensorpull/tensorpull.hpp>

const auto& schema = tensorpull::raw_tensors<std::array<float, 3>>::schema();
