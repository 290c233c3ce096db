// The model of the small engine's rows.
#pragma once

#include "board.hpp"
#include "model.hpp"

#include <tensorpull/tensors/members/members.hpp>

template <>
inline constexpr auto tensorpull::members_of<perceptron> = tensorpull::members(
    tensorpull::member{"hidden_weight", &perceptron::hidden_weight},
    tensorpull::member{"hidden_bias", &perceptron::hidden_bias},
    tensorpull::member{"output_weight", &perceptron::output_weight},
    tensorpull::member{"output_bias", &perceptron::output_bias});
