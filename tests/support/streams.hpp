// One piece of memory to or from a stream, without a list of spans around it.
#pragma once

#include "words.hpp"

#include <tensorpull/links/byte_stream.hpp>

#include <array>
#include <span>

namespace test {

template <class Stream>
tensorpull::io_result read_some(Stream& from, byte_span memory) {
  return from.read_some(std::array{memory});
}
template <class Stream>
tensorpull::io_result write_some(Stream& to, const_byte_span memory) {
  return to.write_some(std::array{memory});
}

}  // namespace test
