// The owner's role at one end of a datagram connection: which of the owner's references the peer uses, and what is
// answered.
#pragma once

#include <tensorpull/protocol/datagrams/detail/datagram_replies.hpp>
#include <tensorpull/protocol/owner/detail/late_requests.hpp>

#include <cstring>
#include <utility>

namespace tensorpull::detail {

template <framing Framing, class Limits, class Owner>
class datagram_answering {
 public:
  using replies_type = datagram_replies<Framing, Limits, Owner>;
  using pool_type = typename replies_type::pool_type;
  using line_type = typename replies_type::line_type;
  using long_type = typename replies_type::long_type;

  explicit datagram_answering(Owner& owner) noexcept : owner_(&owner) {}

  /// Lets go of the owner and the pool. False: that was done before.
  bool close(pool_type& pool) noexcept {
    if (owner_ == nullptr) return false;
    std::exchange(owner_, nullptr)->forget(serves_);
    drop_locate(pool);
    return true;
  }

  /// Whether a locate waits for its digest.
  bool locating() const noexcept { return locate_ != nullptr; }

  /// Answers a request that arrived at `intake`. Without room for the answer it counts as lost.
  template <class Intake>
  void take(const frame& m, std::span<const std::byte> bytes, Intake& intake, line_type& line,
            long_type& pieces) noexcept {
    if (late_.is_late(m.kind, m.id)) return;
    if (m.kind != frame_kind::pull) late_.has_changed(m.id);
    if (m.kind == frame_kind::locate) return locate(m, bytes, intake, line, pieces);
    if (replies.full()) return;
    pending_reply r;
    if (!handle(m, r, intake, line)) return;
    intake.count_answer(r.kind, r.status);
    replies.push(r);
  }

  /// Adds what there is to answer.
  template <class Intake>
  void plan(datagram_writer& out, Intake& intake, line_type& line, long_type& pieces) noexcept {
    if (locating()) go_on_locating(intake, line, pieces);
    replies.plan(out, *owner_, line, pieces);
  }
  /// The link took a plan, or did not.
  void sent(const datagram_plan& plan, bool taken) noexcept { replies.sent(plan.replies, taken, *owner_); }

  replies_type replies{};

 private:
  /// A chunk is never longer than a datagram.
  template <class Intake>
  bool handle(const frame& m, pending_reply& r, Intake& intake, const line_type& line) noexcept {
    if (m.kind != frame_kind::pull || m.length <= line.piece_bytes())
      return owner_->handle(serves_, m, r, intake.who());
    frame fitting = m;
    fitting.length = static_cast<std::uint32_t>(line.piece_bytes());
    if constexpr (Limits::slices)  // whole runs
      if (const byte_runs runs = runs_of(m); runs.apart()) fitting.length -= fitting.length % runs.length;
    return owner_->handle(serves_, fitting, r, intake.who());
  }
  /// Answers a request for named tensors, or keeps it as long as the digest is being computed.
  template <class Intake>
  void locate(const frame& m, std::span<const std::byte> bytes, Intake& intake, line_type& line,
              long_type& pieces) noexcept {
    if (pieces.has_to_wait(m) || replies.full() || bytes.size() > line.pool.buffer_bytes()) return;
    byte_range ranges[Limits::control_frame_bytes / 32];
    frame answer;
    if (owner_->locate(serves_, m, ranges, answer, intake.who()) == digest_state::working)
      return keep(bytes, line.pool);
    drop_locate(line.pool);
    intake.count_answer(answer.kind, answer.status);
    if (answer.kind != frame_kind::refused) {
      if (pieces.push(answer, line)) return;
      answer.status = status::busy;  // there is no buffer
      answer.version = m.version;
    }
    replies.push(refusal_of(m, answer));
  }
  void keep(std::span<const std::byte> bytes, pool_type& pool) noexcept {
    if (bytes.data() == locate_) return;
    if (locate_ == nullptr) locate_ = pool.acquire();
    if (locate_ == nullptr) return;
    std::memcpy(locate_, bytes.data(), bytes.size());
    locate_bytes_ = static_cast<std::uint32_t>(bytes.size());
  }
  void drop_locate(pool_type& pool) noexcept {
    if (locate_ != nullptr) pool.release(std::exchange(locate_, nullptr));
  }
  template <class Intake>
  [[gnu::noinline]] void go_on_locating(Intake& intake, line_type& line, long_type& pieces) noexcept {
    const std::span<const std::byte> bytes(locate_, locate_bytes_);
    typename Framing::decode_storage lists;
    frame m;
    if (Framing::decode(bytes, m, lists)) locate(m, bytes, intake, line, pieces);
  }

  Owner* owner_;  // null once close() was called
  std::byte* locate_ = nullptr;  // a request for named tensors whose digest is not ready
  std::uint32_t locate_bytes_ = 0;
  late_requests late_{};
  [[no_unique_address]] typename Owner::peer serves_{};
};

}  // namespace tensorpull::detail
