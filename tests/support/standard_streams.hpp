// What a program and the Python script that is its other half say to each other: numbers are u64 little-endian, text is
// {length, bytes}. A program whose input is cut short ends.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace test {

/// False: the input has ended.
inline bool try_number(std::uint64_t& n) { return std::fread(&n, 1, sizeof n, stdin) == sizeof n; }
inline void must(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "%s\n", what);
  std::exit(1);
}
inline std::uint64_t number() {
  std::uint64_t n = 0;
  must(try_number(n), "short input");
  return n;
}
inline std::string text(std::uint64_t length) {
  std::string s(length, '\0');
  must(std::fread(s.data(), 1, s.size(), stdin) == s.size(), "short input");
  return s;
}
inline std::string text() { return text(number()); }
inline void put(std::uint64_t n) { std::fwrite(&n, sizeof n, 1, stdout); }
inline void put(std::string_view s) {
  put(std::uint64_t{s.size()});
  std::fwrite(s.data(), 1, s.size(), stdout);
}

}  // namespace test
