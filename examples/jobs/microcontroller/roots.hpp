// The roots of the models that the server publishes, in files, for a device that believes no line. Without the
// satellite `proofs` there are none, and options.hpp refuses them.
#pragma once

#include "network.hpp"

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

#if __has_include(<tensorpull/satellites/proofs/proof_tree.hpp>)
#include <tensorpull/satellites/proofs/proof_tree.hpp>

namespace microcontroller {

inline constexpr bool has_roots = true;

/// Writes what `b3sum` prints for the model as a file to a file of its own, whose name is the number of the round.
inline bool write_root(const std::string& folder, std::uint32_t round, const mlp& model) {
  const auto tree = tensorpull::proof_tree::make(over_line::parts::tensors::source(model));
  if (!tree) return complain("there is no root", tree.error());
  const std::string file = folder + '/' + std::to_string(round), part = file + ".part";
  std::ofstream out(part);
  for (const std::byte b : tree->root()) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", std::to_integer<unsigned>(b));
    out << digits;
  }
  out << "  -\n";
  out.close();
  if (out && std::rename(part.c_str(), file.c_str()) == 0) return true;
  std::perror("the file of a root");
  return false;
}

}  // namespace microcontroller
#else
namespace microcontroller {

inline constexpr bool has_roots = false;
inline bool write_root(const std::string&, std::uint32_t, const mlp&) { return false; }

}  // namespace microcontroller
#endif
