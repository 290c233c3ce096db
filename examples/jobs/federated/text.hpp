// Small texts from numbers, for tables, sentences, JSON and SVG.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace federated {

/// Like printf; cut off after 400 bytes.
template <typename... Values>
std::string formatted(const char* format, Values... values) {
  char text[400];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

inline double mebibytes(std::uint64_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024.0); }

/// For %llu, which std::uint64_t need not match.
inline unsigned long long wide(std::uint64_t n) { return n; }

}  // namespace federated
