// The owner of an image that arrives: it gives what is proved, and puts off who asks for more.
#pragma once

#include <tensorpull/core/ids.hpp>
#include <tensorpull/framing/frame.hpp>
#include <tensorpull/image/byte_runs.hpp>
#include <tensorpull/protocol/pending_reply.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/satellites/parallel/swarm/detail/swarm_messages.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <cstdint>
#include <span>

namespace tensorpull::detail {

/// Derives from the protocol's owner. Of the reference that arrives, requests are answered whose bytes are there.
/// Others are `busy`, and so are those for named tensors, whose digest would be of what is not there yet.
template <class Owner>
class arriving_owner : public Owner {
 public:
  using Owner::Owner;

  /// From now on this reference arrives; `proved`, borrowed, has its parts. The first `never` bytes are never given.
  void arrives(const ref_id& id, const swarm::parts* proved, std::uint64_t never = 0) noexcept {
    id_ = id;
    proved_ = proved;
    never_ = never;
  }
  /// Everything is there.
  void arrived() noexcept { proved_ = nullptr; }

  bool handle(typename Owner::peer& from, const frame& m, pending_reply& out,
              const identity_source& who = {}) noexcept {
    // asked first, so that one that may not have it hears the same as of an unknown reference
    const bool says = Owner::handle(from, m, out, who);
    if (says && out.kind == frame_kind::chunk && is_missing(out))
      out = {.kind = frame_kind::refused,
             .status = status::busy,
             .id = m.id,
             .ref = m.ref,
             .version = out.version,
             .offset = m.offset};
    return says;
  }
  digest_state locate(typename Owner::peer& from, const frame& m, std::span<byte_range> ranges, frame& answer,
                      const identity_source& who = {}) noexcept {
    publication_facts facts;
    if ((proved_ == nullptr && never_ == 0) || m.ref != id_ || Owner::look(from, m, facts, who) != status::ok)
      return Owner::locate(from, m, ranges, answer, who);
    const digest_state now = no_owner::locate(m, answer);
    answer.status = status::busy;
    answer.delay_ms = 1000;
    return now;
  }

  /// As the owner's. A reply may be of the same content that was published before, and arrives again in other memory.
  bool renew(pending_reply& r) noexcept { return !is_missing(r) && Owner::renew(r); }

 private:
  /// Whether a byte that is to be sent is not proved. A request of runs is none of a swarm's.
  bool is_missing(const pending_reply& r) const noexcept {
    if (r.ref != id_) return false;
    if (r.offset < never_) return true;
    if (proved_ == nullptr) return false;
    if (r.runs || r.length == 0) return true;
    const std::uint64_t last = r.offset + (r.length - 1);
    if (last < r.offset || last >> proved_->shift >= swarm::most_parts) return true;
    for (std::uint64_t part = r.offset >> proved_->shift; part <= last >> proved_->shift; ++part)
      if (!proved_->has(static_cast<std::size_t>(part))) return true;
    return false;
  }

  ref_id id_{};
  const swarm::parts* proved_ = nullptr;
  std::uint64_t never_ = 0;
};

/// A transport whose owners have images that arrive. One thread runs its connections.
template <class Next>
struct arriving : Next {
  static constexpr bool threads = false;
  template <class Owner>
  using sharing_owner = arriving_owner<Owner>;
};

}  // namespace tensorpull::detail
