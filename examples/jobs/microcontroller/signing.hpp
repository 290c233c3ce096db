// The signed references of the models that the server publishes, for a device that believes no line. Without the
// satellite `proofs` and OpenSSL there are none, and options.hpp refuses them.
#pragma once

#include "network.hpp"

#include <cstdint>
#include <string>

#ifdef MICROCONTROLLER_SIGNS
#include <tensorpull/satellites/proofs/proof_tree.hpp>
#include <tensorpull/satellites/proofs/signed_reference.hpp>

#include <chrono>
#include <cstring>
#include <optional>

namespace microcontroller {

inline constexpr bool can_sign = true;

/// Has the federation's private key.
class signer {
 public:
  bool open(const std::string& file) {
    auto key = tensorpull::signing_key::read({.file = file});
    if (!key) return complain("the key that signs", key.error());
    key_.emplace(std::move(*key));
    return true;
  }
  explicit operator bool() const noexcept { return key_.has_value(); }

  /// Signs for a day what was published as the model of a round, and its root.
  bool sign(std::uint32_t round, const tensorpull::reference& published, const mlp& model, reference_text& to) const {
    const auto tree = tensorpull::proof_tree::make(over_line::parts::tensors::source(model));
    if (!tree) return complain("there is no root", tree.error());
    using namespace std::chrono;
    const auto now = duration_cast<seconds>(system_clock::now().time_since_epoch()).count();
    // the device compares the whole model with the root, so no tree is published
    const auto text = tensorpull::sign_reference({{published, {}, tree->root(), tree->image_bytes()},
                                                  std::string(federation),
                                                  round,
                                                  static_cast<std::uint64_t>(now) + 86'400,
                                                  {}},
                                                 *key_);
    if (!text) return complain("cannot sign", text.error());
    if (text->size() > sizeof to.text) {
      std::fprintf(stderr, "a signed reference is longer than a device takes\n");
      return false;
    }
    to = {};
    std::memcpy(to.text, text->data(), text->size());
    return true;
  }

 private:
  std::optional<tensorpull::signing_key> key_;
};

}  // namespace microcontroller
#else
namespace microcontroller {

inline constexpr bool can_sign = false;
class signer {
 public:
  bool open(const std::string&) { return false; }
  explicit operator bool() const noexcept { return false; }
  bool sign(std::uint32_t, const tensorpull::reference&, const mlp&, reference_text&) const { return false; }
};

}  // namespace microcontroller
#endif
