// The owner's role at one end of a connection: which of the owner's references the peer uses, and the answers that wait
// to be sent.
#pragma once

#include <tensorpull/core/peer_identity.hpp>
#include <tensorpull/protocol/connection/detail/stream_output.hpp>
#include <tensorpull/protocol/roles.hpp>

#include <utility>

namespace tensorpull::detail {

template <framing Framing, class Limits, class Owner>
class answering {
 public:
  using pool_type = buffer_pool<typename Owner::lock_type>;
  using plan_type = typename stream_output<Framing, Limits, Owner>::plan_type;

  answering(Owner& owner, pool_type& pool) noexcept : owner_(&owner), pool_(pool) {}

  /// Lets go of the owner and the pool; both may be destroyed afterwards.
  void close() noexcept {
    if (owner_ == nullptr) return;
    std::exchange(owner_, nullptr)->forget(serves_);
    output.drop_long(pool_);
  }

  /// Whether the last request is a locate whose digest is not ready.
  bool locating() const noexcept { return locating_; }

  /// Answers a request of `who`. False: there is no room for the answer yet, or locating(); call it again with the same
  /// request.
  result<bool> take(const frame& m, const identity_source& who) noexcept {
    if constexpr (!Owner::owns) {
      return true;  // an end that owns nothing says nothing
    } else {
      if (output.replies_full()) return false;
      if (m.kind == frame_kind::locate) return locate(m, who);
      pending_reply r;
      if (owner_->handle(serves_, m, r, who)) {
        served += r.kind != frame_kind::refused || r.status == status::busy;
        output.push(r);
      }
      return true;
    }
  }

  result<void> plan(plan_type& p, std::span<std::byte> scratch, std::size_t most) noexcept {
    return output.plan(p, *owner_, scratch, most);
  }
  void sent(const plan_type& p, std::size_t n) noexcept { output.sent(p, n, *owner_, pool_); }

  stream_output<Framing, Limits, Owner> output{};
  std::uint32_t served = 0;  ///< requests that were not refused, or only because there is no room now

 private:
  result<bool> locate(const frame& m, const identity_source& who) noexcept {
    // a digest that was begun is computed to its end whatever the peer takes, since others wait for the next one
    if (!locating_ && !output.long_free()) return false;
    byte_range ranges[Limits::control_frame_bytes / 32];
    frame answer;
    locating_ = owner_->locate(serves_, m, ranges, answer, who) == digest_state::working;
    if (locating_ || !output.long_free()) return false;
    const bool no_buffer = answer.kind != frame_kind::refused && pool_.available() == 0;  // waiting for one while
                                                                                          // holding one could wait for
                                                                                          // ever
    if (no_buffer) answer.status = status::busy, answer.version = m.version;
    if (no_buffer || answer.kind == frame_kind::refused) {  // which needs no buffer
      served += answer.status == status::busy;
      output.push({frame_kind::refused, answer.status, m.id, 0, 0, answer.delay_ms, 0, m.ref, answer.version,
                   answer.offset, 0, 0, digest_kind::none});
      return true;
    }
    ++served;
    if (const auto ok = output.push_answer(answer, pool_); !ok) return failure(ok.error());
    return true;
  }

  bool locating_ = false;  // first, because there is room for it behind `served`
  Owner* owner_;  // null once close() was called
  pool_type& pool_;
  [[no_unique_address]] typename Owner::peer serves_{};
};

}  // namespace tensorpull::detail
