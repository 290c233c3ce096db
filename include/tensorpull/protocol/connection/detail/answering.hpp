// The owner's role at one end of a byte stream: which of the owner's references the peer uses, and the answers that
// wait to be sent.
#pragma once

#include <tensorpull/protocol/connection/detail/stream_output.hpp>
#include <tensorpull/protocol/roles.hpp>

#include <utility>

namespace tensorpull::detail {

template <framing Framing, class Limits, class Owner>
class answering {
 public:
  using pool_type = buffer_pool<typename Owner::lock_type>;
  using plan_type = typename stream_output<Framing, Limits, Owner>::plan_type;

  answering(Owner& owner, pool_type& buffers) noexcept : pool(buffers), owner_(&owner) {}

  /// Lets go of the owner and the pool; both may be destroyed afterwards.
  void close() noexcept {
    if (owner_ == nullptr) return;
    std::exchange(owner_, nullptr)->forget(serves_);
    output.drop_long(pool);
  }

  /// Whether the last request is a locate whose digest is not ready.
  bool locating() const noexcept { return locating_; }

  /// Answers a request that arrived at `intake`. False: there is no room for the answer yet, or locating(); call it
  /// again with the same request.
  template <class Intake>
  result<bool> take(const frame& m, Intake& intake) noexcept {
    if constexpr (!Owner::owns) {
      return true;  // an end that owns nothing answers nothing
    } else {
      if (output.replies.size() == Owner::waiting_replies) return false;
      if (m.kind == frame_kind::locate) return locate(m, intake);
      pending_reply r;
      if (owner_->handle(serves_, m, r, intake.who())) {
        intake.count_answer(r.kind, r.status);
        output.replies.push(r);
      }
      return true;
    }
  }

  result<void> plan(plan_type& p, std::span<std::byte> scratch, std::size_t most) noexcept {
    return output.plan(p, *owner_, scratch, most);
  }
  void sent(const plan_type& p, std::size_t n) noexcept { output.sent(p, n, *owner_, pool); }

  stream_output<Framing, Limits, Owner> output{};
  pool_type& pool;

 private:
  template <class Intake>
  result<bool> locate(const frame& m, Intake& intake) noexcept {
    // a digest that was begun is computed to its end whatever the peer takes, since others wait for the next one
    if (!locating_ && !output.long_free()) return false;
    byte_range ranges[Limits::control_frame_bytes / 32];
    frame answer;
    locating_ = owner_->locate(serves_, m, ranges, answer, intake.who()) == digest_state::working;
    if (locating_ || !output.long_free()) return false;
    if (answer.kind != frame_kind::refused) {
      const auto ok = output.push_answer(answer, pool);
      if (!ok && ok.error() != errc::busy) return failure(ok.error());
      if (!ok) {  // waiting for a buffer while holding one could wait for ever
        answer.kind = frame_kind::refused;
        answer.status = status::busy;
        answer.version = m.version;
      }
    }
    intake.count_answer(answer.kind, answer.status);
    if (answer.kind == frame_kind::refused) output.replies.push(refusal_of(m, answer));  // which needs no buffer
    return true;
  }

  Owner* owner_;  // null once close() was called
  [[no_unique_address]] typename Owner::peer serves_{};
  bool locating_ = false;
};

}  // namespace tensorpull::detail
