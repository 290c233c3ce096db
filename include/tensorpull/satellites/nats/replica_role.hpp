// One of several owners of one content: it gives chunks and decides nothing.
#pragma once

#include <tensorpull/protocol/roles.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

/// An owner_role in front of an owner. As a replica it answers requests for chunks with chunks, and nothing else: a
/// recipient whose request is not answered repeats it, and is answered by another owner of the content, or told the
/// reason by the coordinator.
template <owner_role Owner>
class replica_role {
 public:
  using lock_type = typename Owner::lock_type;                               ///< the owner's
  using peer = typename Owner::peer;                                         ///< the owner's
  static constexpr bool owns = Owner::owns;                                  ///< as the owner
  static constexpr std::size_t waiting_replies = Owner::waiting_replies;     ///< as the owner

  /// Stands in front of an owner, which is borrowed, and passes everything on until only_chunks().
  explicit replica_role(Owner& of) noexcept : owner_(of) {}
  /// Makes it a replica.
  void only_chunks() noexcept { replica_ = true; }
  /// Whether it is a replica.
  bool is_replica() const noexcept { return replica_; }

  /// As in owner_role, and so are those below.
  bool handle(peer& from, const frame& m, pending_reply& out, const identity_source& who = {}) noexcept {
    if (!replica_) return owner_.handle(from, m, out, who);
    return m.kind == frame_kind::pull && owner_.handle(from, m, out, who) && out.kind == frame_kind::chunk;
  }
  /// Refused; programs that know a replica never ask it.
  digest_state locate(peer& from, const frame& m, std::span<byte_range> ranges, frame& answer,
                      const identity_source& who = {}) noexcept {
    return replica_ ? no_owner::locate(m, answer) : owner_.locate(from, m, ranges, answer, who);
  }
  void forget(peer& from) noexcept { owner_.forget(from); }  ///< passed on
  const source_view* pin(const pending_reply& r) noexcept { return owner_.pin(r); }  ///< passed on
  void unpin(const pending_reply& r, std::uint64_t payload_bytes_sent) noexcept {
    owner_.unpin(r, payload_bytes_sent);
  }  ///< passed on
  void unreadable(const pending_reply& r) noexcept { owner_.unreadable(r); }  ///< passed on
  frame expand(const pending_reply& r) const noexcept { return owner_.expand(r); }  ///< passed on
  /// A replica whose content has gone answers `busy`, so that the recipient asks the coordinator.
  void refuse_gone(pending_reply& r) const noexcept {
    owner_.refuse_gone(r);
    if (replica_) r.status = status::busy;
  }
  digest_state digest(pending_reply& r, std::uint64_t& allowance, std::span<std::byte> memory) noexcept {
    return owner_.digest(r, allowance, memory);
  }  ///< passed on

 private:
  Owner& owner_;
  bool replica_ = false;
};

}  // namespace tensorpull
