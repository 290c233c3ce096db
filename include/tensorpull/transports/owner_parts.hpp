// The parts of a pipeline on which its owner's side depends. Pipelines whose owners do the same share its code.
#pragma once

namespace tensorpull {

/// The policies of an owner. How a recipient cuts, and what a model is, are not among them: an owner publishes images
/// and answers for any range.
template <class Transport, class Framing, class Limits, class Hash, class ChunkHash, bool Verifiable>
struct owner_parts {
  /// The transport policy.
  using transport = Transport;
  /// The framing policy.
  using framing = Framing;
  /// The bounds on a peer.
  using limits = Limits;
  /// The hash of its digests of an image.
  using owner_hash = Hash;
  /// The hash of its digests of a chunk.
  using owner_chunk_hash = ChunkHash;
  /// Whether a version is the digest of its image.
  static constexpr bool verifiable = Verifiable;
};

/// Those of a pipeline, whose resolved policies are `Parts` (detail/policy_slots.hpp).
template <class Parts>
using owner_parts_of =
    owner_parts<typename Parts::transport, typename Parts::framing, typename Parts::limits, typename Parts::owner_hash,
                typename Parts::owner_chunk_hash, Parts::integrity::whole>;

}  // namespace tensorpull
