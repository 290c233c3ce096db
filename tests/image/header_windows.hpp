// The law of ranges for a header: every window of it is that part of the whole.
#pragma once

#include "support/words.hpp"

#include <tensorpull/image/header.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

namespace test {

/// The whole header, after each window of it was compared with that.
inline byte_vector header_in_windows(const tensorpull::image_schema& schema) {
  using tensorpull::write_header;
  byte_vector whole(schema.header_bytes + 9);  // more room than the header needs
  const std::size_t n = write_header(schema, 0, whole);
  EXPECT_EQ(n, schema.header_bytes);
  whole.resize(n);
  byte_vector part(n);
  std::size_t wrong = 0;
  for (std::size_t offset = 0; offset <= n; ++offset)
    for (const std::size_t length : {std::size_t{1}, std::size_t{7}, std::size_t{16}, n}) {
      const std::size_t got = write_header(schema, offset, std::span(part).first(std::min(length, part.size())));
      EXPECT_EQ(got, std::min(length, n - offset));
      wrong += std::equal(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(got),
                          whole.begin() + static_cast<std::ptrdiff_t>(offset))
                   ? 0
                   : 1;
    }
  EXPECT_EQ(wrong, 0u) << "windows that are not the header's bytes";
  return whole;
}

}  // namespace test
