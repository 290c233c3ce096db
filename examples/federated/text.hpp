// Small texts from numbers, for tables, sentences, JSON and SVG.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace federated {

/// As printf; what goes beyond 400 bytes is cut off.
template <typename... Values>
std::string formatted(const char* format, Values... values) {
  char text[400];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

inline double mebibytes(std::uint64_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024.0); }

/// For %llu, whatever std::uint64_t is.
inline unsigned long long wide(std::uint64_t n) { return n; }

}  // namespace federated
