// Models without a schema.
// One line more than five: a policy refuses its own arguments, so the pipeline that names it stands between.
// WITHIN_LINES: 6
#include "model.hpp"

// CASE renamed_to_one_name
// EXPECT: tensorpull: renamed: two tensors have the same new name
const auto& schema = raw_tensors<renamed<mlp, from_to{"w", "0"}, from_to{"b", "0"}>>::schema();

// CASE renamed_to_reserved_name
// EXPECT: tensorpull: a tensor may not be named __metadata__
const auto& schema = raw_tensors<renamed<mlp, from_to{"w", "__metadata__"}>>::schema();

// CASE renamed_unknown_name
// EXPECT: tensorpull: renamed: an old name is neither the name of a tensor nor the leading components of one
const auto& schema = raw_tensors<renamed<mlp, from_to{"weight", "0.weight"}>>::schema();

// CASE tied_of_other_shapes
// EXPECT: tensorpull: tied: two tensors that are tied have different dtypes or shapes
const auto& schema = raw_tensors<tied<mlp, from_to{"w", "b"}>>::schema();

// CASE tied_unknown_name
// EXPECT: tensorpull: tied: an alias or a kept name is not the name of a tensor, or a tensor is tied twice
const auto& schema = raw_tensors<tied<mlp, from_to{"w", "embed"}>>::schema();

// CASE array_of_scalars
// EXPECT: tensorpull: a model is a struct adapted with BOOST_HANA_ADAPT_STRUCT
// WITHIN_LINES: 5
const auto& schema = raw_tensors<std::array<float, 3>>::schema();

// CASE const_member
// EXPECT: tensorpull: a member of the model is neither a scalar, an array of scalars nor an adapted struct, or it is const
// WITHIN_LINES: 5
struct fixed {
  const float w[4]{};
};
BOOST_HANA_ADAPT_STRUCT(fixed, w);
const auto& schema = raw_tensors<fixed>::schema();
