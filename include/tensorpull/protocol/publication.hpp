// One slot of an owner: an image under a reference, and how its recipients fared.
#pragma once

#include <tensorpull/image/view.hpp>
#include <tensorpull/protocol/ref_id.hpp>

#include <cstdint>

namespace tensorpull {

/// How to publish.
struct publish_options {
  ref_id id{};                    ///< chosen before (to publish again under the same name); none: a random one
  std::uint32_t recipients = 0;   ///< how many have to confirm before the reference is settled; 0: not known, never settled
};

/// Counts of one publication. A recipient is final once it confirmed or cancelled.
struct publication_status {
  std::uint32_t acquired = 0;                ///< recipients that asked for it
  std::uint32_t completed = 0;               ///< confirmed with the published digest
  std::uint32_t completed_unverified = 0;    ///< confirmed without a digest
  std::uint32_t failed = 0;                  ///< confirmed with another digest
  std::uint32_t cancelled = 0;               ///< gave up and said so
  std::uint32_t lost = 0;                    ///< the connection ended before a confirmation; may come back
  std::uint64_t bytes_sent = 0;              ///< payload handed to transports

  constexpr std::uint32_t final() const noexcept { return completed + completed_unverified + failed + cancelled; }
};

/// A slot. `generation` grows with every change of what is published, so that whoever holds a slot's number notices.
struct publication {
  enum class state : std::uint8_t { empty, published, withdrawn };

  ref_id id{};
  source_view image{};
  std::uint64_t version = 0;
  publication_status counts{};
  std::uint32_t generation = 0;
  std::uint32_t recipients = 0;
  std::uint32_t pins = 0;  ///< transports that read the image's memory at this moment
  state now = state::empty;
  bool verifiable = false;
};

}  // namespace tensorpull
