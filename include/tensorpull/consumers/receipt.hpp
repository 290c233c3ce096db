// A recipient's knowledge when a transfer has ended well.
#pragma once

#include <tensorpull/core/error.hpp>
#include <tensorpull/core/ids.hpp>

#include <cstdint>
#include <string_view>

namespace tensorpull {

/// `completed`: the recipient holds exactly the published bytes; it has compared their digest.
/// `completed_unverified`: everything arrived, but nobody compared a digest of the whole.
/// With neither need the owner know of it: see receipt::confirmed.
enum class outcome : std::uint8_t {
  completed,
  completed_unverified,
};

/// The outcome's name.
constexpr std::string_view to_string(outcome o) noexcept {
  return o == outcome::completed ? "completed" : "completed_unverified";
}

/// The account of a transfer. A consumer's finish() is given it before the owner is told, so `confirmed` is false
/// there.
struct receipt {
  /// Whether the whole was compared with what was published.
  tensorpull::outcome outcome = outcome::completed_unverified;
  std::uint64_t bytes = 0;  ///< of the image, header included; of a subset: of its tensors
  std::uint64_t chunks = 0;  ///< Chunks that the consumer took.
  std::uint64_t damaged = 0;  ///< chunks that came with wrong bytes and were fetched again
  std::uint64_t version = 0;  ///< of the image
  std::uint64_t fingerprint = 0;  ///< of the image's schema
  std::uint64_t digest = 0;  ///< XXH3-64 of what was received; 0 if none was computed
  bool confirmed = false;  ///< The owner is known to have recorded the confirmation.
  /// If it is not: why, such as timed_out. `outcome` holds nevertheless. errc{} if it is confirmed.
  errc unconfirmed_because{};
  /// The one that answered was believed: nothing that the recipient was given beforehand fixes which bytes these have
  /// to be. False: they have the digest that it was given, as the version of the reference or as that of the pull, so
  /// nobody has sent it others by mistake or under another's name. A pull of some tensors believes always, since a
  /// version is the digest of the whole.
  bool believed = true;
};

/// The owner's description, before data moves. Offsets that consumers see count from the image's first byte; of a
/// subset: from its first tensor (data_start is then 0).
struct description {
  ref_id ref{};  ///< The reference that is pulled.
  std::uint64_t version = 0;  ///< of the image
  std::uint64_t fingerprint = 0;  ///< of the image's schema
  std::uint64_t image_bytes = 0;  ///< Bytes to receive: of the image, header included; of a subset, of its tensors.
  std::uint64_t data_start = 0;  ///< First byte behind the header; 0 for a subset.
  std::uint64_t tensors = 0;  ///< Number of tensors.
  bool verifiable = false;  ///< Whether the version is a digest of the image's bytes.
};

}  // namespace tensorpull
