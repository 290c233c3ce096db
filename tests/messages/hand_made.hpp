// Bodies of messages that are made by hand, and how they are refused.
#pragma once

#include "structs.hpp"

#include <algorithm>
#include <span>
#include <vector>

namespace test {

/// A body made by hand.
class body {
 public:
  template <class Fill>
  explicit body(Fill fill) {
    capnp::MallocMessageBuilder builder(1 << 14);  // one segment
    fill(builder.initRoot<tp::wire::Decomposed>());
    const auto segments = builder.getSegmentsForOutput();
    words_.push_back((std::uint64_t{segments[0].size()} << 32) | (segments.size() - 1));
    const auto* const w = reinterpret_cast<const std::uint64_t*>(segments[0].begin());
    words_.insert(words_.end(), w, w + segments[0].size());
  }
  explicit body(const_byte_span bytes) : words_((bytes.size() + 7) / 8), bytes_(bytes.size()) {
    std::copy(bytes.begin(), bytes.end(), std::as_writable_bytes(std::span(words_)).begin());
  }
  byte_span bytes() {
    return std::as_writable_bytes(std::span(words_)).first(bytes_ != 0 ? bytes_ : words_.size() * 8);
  }

 private:
  std::vector<std::uint64_t> words_;
  std::size_t bytes_ = 0;
};

/// A body of one field.
template <class Fill>
body one_field(const char* name, Fill fill) {
  return body([&](tp::wire::Decomposed::Builder d) {
    auto f = d.initFields(1)[0];
    f.setName(name);
    fill(f);
  });
}

/// For a tp::error: its code and its name.
#define EXPECT_REFUSED(refused, reason, field)             \
  do {                                                     \
    const tp::error e = (refused);                         \
    EXPECT_EQ(to_string(e.code), to_string(errc::reason)); \
    EXPECT_EQ(e.name.view(), field);                       \
  } while (false)

}  // namespace test
