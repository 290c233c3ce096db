// A model and a device of a small machine, which are right. Included behind the library's headers, so that these stand
// nearest to the wrong line.
#pragma once

#include <tensorpull/links/byte_stream.hpp>
#include <tensorpull/tensors/members/members.hpp>

using namespace tensorpull;

struct mlp {
  float w[3], b[4];
};
template <>
inline constexpr auto tensorpull::members_of<mlp> = members(member{"w", &mlp::w}, member{"b", &mlp::b});
struct uart {
  io_result read(std::span<std::byte>) noexcept { return {}; }
  io_result write(std::span<const std::byte>) noexcept { return {}; }
};
