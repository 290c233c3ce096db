// A recipient's knowledge of a model before it asks anybody.
#pragma once

#include <tensorpull/core/ids.hpp>
#include <tensorpull/satellites/proofs/blake3.hpp>

#include <cstdint>

namespace tensorpull {

/// A recipient's knowledge of a model before it asks anybody: by a channel that it trusts, or by a signature
/// (signed_reference.hpp, on small machines embedded_reference.hpp).
struct proved_reference {
  reference model{};  ///< what is pulled; it has a version
  reference tree{};  ///< proof_tree::image(); none if the root proves the image alone
  blake3_value root{};  ///< of the image: what `b3sum` prints for it as a file
  std::uint64_t image_bytes = 0;  ///< its length, header included
};

}  // namespace tensorpull
