// Proofs: send signs a reference and publishes the tree of its model, recv takes what a key has signed, and proves each
// group as it lands. It is compiled where the component is there (TENSORPULL_TOOLS_PROOFS).
#pragma once

#include "link_choice.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tools {

/// Refuses an option in a build without them.
inline void need_proofs(std::string_view option) {
  if (!TENSORPULL_TOOLS_PROOFS)
    throw option_error("--" + std::string(option) + ": this program was built without proofs, which need OpenSSL");
}

/// A name as it can be signed.
inline std::string parse_federation(std::string_view name) {
  if (name.empty() || name.size() > 255 ||
      std::any_of(name.begin(), name.end(), [](char c) { return c <= ' ' || c > '~'; }))
    throw option_error("--federation wants a name of 1 to 255 visible ASCII characters, not '" + printable(name) + "'");
  return std::string(name);
}
/// Seconds from now, or a date as in 2027-01-31 or 2027-01-31T12:00:00Z, in Unix time. Throws option_error.
std::uint64_t parse_expiry(std::string_view option, std::string_view text);
/// "2027-01-31 12:00 UTC"
std::string date_text(std::uint64_t unix_time);

/// The options of send that say what is signed.
struct signing_choice {
  std::string key, federation, expires_text;
  std::uint64_t round = 0, expires = 0;
};
/// The tree of a model, to be published beside it.
struct model_tree {
  std::optional<tp::source_view> image{};  ///< none: the root proves the model alone
  std::array<std::byte, 32> root{};
  std::uint64_t image_bytes = 0;
  std::shared_ptr<const void> keep{};
};
/// Errors: as proof_tree::make.
tp::result<model_tree> make_tree(const tp::source_view& image, const tp::stop_token& stop);
/// The ID that the tree of a model has.
tp::ref_id tree_id(const tp::reference& model);
/// Writes the text that is signed of a model and its tree. Errors: as sign_reference.
using signer = std::function<tp::result<std::string>(const tp::reference&, const tp::reference&, const model_tree&)>;
/// Reads the key. Errors: as signing_key::read.
tp::result<signer> open_signer(const signing_choice& choice);

/// The options of recv that say what it takes.
struct trust_choice {
  std::string reference, keys, federation;  ///< names of two files, and a name
  std::uint64_t least_round = 0;
};
/// The content of a signed reference that was verified.
struct known_model {
  tp::reference model{}, tree{};
  std::array<std::byte, 32> root{};
  std::uint64_t image_bytes = 0, round = 0;
  std::string federation{}, note{};
};
/// Why nothing is pulled.
struct refusal {
  tp::errc code{};
  std::string name{};  ///< "signature", "revoked", "federation", "round" or "expires"; empty: a file cannot be used
  std::string message{};
};
std::optional<refusal> verify(const trust_choice& choice, known_model& to);

struct wanted_proof {
  const link_choice& link;  ///< one sender over as many connections as are wanted, or several at once
  const known_model& of;
  const tp::pull_options& options;
  std::uint64_t chunk;
  std::uint8_t* wrong;  ///< which senders gave wrong bytes
  facade::any_member* member = nullptr;  ///< pulls from the one sender, and from others that do
};
/// Pulls. Errors: as pull_proved.
tp::result<tp::receipt> bring_proved(const wanted_proof& wanted, facade::any_consumer& to);

/// The BLAKE3 of a file. Errors: as positioned_file, and cancelled.
tp::result<std::array<std::byte, 32>> blake3_of_file(const std::string& path, const tp::stop_token& stop);
/// The line that `b3sum` prints for a file of this name and digest, and `b3sum -c` reads.
std::string b3sum_line(std::string_view path, const std::array<std::byte, 32>& digest);
/// The lines of all files below a directory, in the order of their names. Errors: io, with the file's name; cancelled.
tp::result<std::string> b3sum_of_directory(const std::string& path, const tp::stop_token& stop);

/// Makes a file of this text, or replaces it. Errors: as atomic_file.
tp::result<void> write_text(const std::string& path, std::string_view text);

}  // namespace tools
