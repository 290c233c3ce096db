// Words that nearly every test says.
#pragma once

#include <tensorpull/core/dtype.hpp>
#include <tensorpull/core/error.hpp>

#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

namespace test {

namespace tp = tensorpull;
using namespace std::chrono_literals;
using tp::dtype;
using tp::errc;
using byte_vector = std::vector<std::byte>;
using byte_span = std::span<std::byte>;
using const_byte_span = std::span<const std::byte>;

}  // namespace test
