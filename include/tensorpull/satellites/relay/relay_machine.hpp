// The state machine of a relay: it passes a reference from its owner (the origin) to one recipient, through the buffer
// of one chunk.
//
// To the recipient it is an owner. Every answer is the origin's own, with the same version, fingerprint, digests and
// nonces; only the cap on chunks is lowered to the buffer's size. To the origin it is a recipient. It passes on the
// recipient's own confirmation, so the origin counts `completed` only if the recipient at the far end has compared the
// digest.
#pragma once

#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/core/limits.hpp>
#include <tensorpull/framing/concept.hpp>
#include <tensorpull/framing/detail/payload_prefix.hpp>
#include <tensorpull/framing/detail/segment_table.hpp>
#include <tensorpull/protocol/recipient/detail/request_id.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

namespace tensorpull {

namespace detail {

/// The requests of a relay's recipient that were not passed on yet, still encoded, in a buffer of one control frame. A
/// recipient that asks too much only fills its own connection.
template <framing Framing, class Limits>
class relay_requests {
 public:
  /// Memory for the next bytes of the recipient; empty: do not read now.
  std::span<std::byte> room() noexcept {
    drop_taken();
    return std::span(bytes_).subspan(have_);
  }
  void received(std::size_t n) noexcept { have_ += n; }

  /// The first request; its texts are valid until the next call of any member. False: it is not complete. Errors: the
  /// bytes are not a frame, are longer than a control frame, or are not a request. One that is_newer() has no more than
  /// its kind and its id.
  result<bool> head(frame& m) noexcept {
    drop_taken();
    const auto have = std::span<const std::byte>(bytes_).first(have_);
    const auto size = measure_frame(have, bytes_.size(), Limits::control_frame_segments);
    if (!size) return failure(size.error());
    if (!*size || **size > have.size()) return false;
    head_ = **size;
    const auto ok = Framing::decode(have.first(head_), m, lists_);
    if (is_newer(m.kind)) return true;
    if (!ok) return failure(ok.error());
    if (!is_request(m.kind)) return failure(errc::unexpected_frame, static_cast<std::uint64_t>(m.kind));
    return true;
  }
  /// Drops the request that head() gave; its texts stay until the next call.
  void take() noexcept { taken_ = head_; }

 private:
  void drop_taken() noexcept {
    if (taken_ == 0) return;
    have_ -= taken_;
    std::memmove(bytes_.data(), bytes_.data() + taken_, have_);
    taken_ = 0;
  }

  alignas(8) std::array<std::byte, Limits::control_frame_bytes> bytes_;
  typename Framing::decode_storage lists_;
  std::size_t have_ = 0, head_ = 0, taken_ = 0;
};

}  // namespace detail

/// The counts of a relay.
struct relayed {
  std::uint64_t bytes = 0;  ///< payload handed to the recipient's transport
  std::uint64_t chunks = 0;  ///< whole chunks handed to it
  std::uint32_t completed = 0;  ///< confirmations with a digest that the origin has accepted
  std::uint32_t completed_unverified = 0;  ///< confirmations without a digest that it has accepted
};

/// Relays one reference over one connection on each side. Towards the origin it is a transfer_role (roles.hpp) for an
/// endpoint; towards the recipient it takes and gives bytes. It has no I/O, clock or heap. Memory: the borrowed buffer,
/// and about 21 KiB whatever the model's size.
template <framing Framing, class Limits = default_limits>
class relay_machine {
 public:
  /// Payload bytes that one read asks for.
  static constexpr std::size_t read_piece_bytes = 256 * 1024;

  /// `chunk`: borrowed, not empty; it bounds the chunks. `id`: the only reference that is passed on. `first_id`: as a
  /// transfer's.
  relay_machine(std::span<std::byte> chunk, ref_id id, std::uint32_t first_id) noexcept
      : chunk_(chunk), ref_(id), first_id_(first_id), next_id_(first_id) {}

  // Towards the recipient.

  /// Memory for the next bytes of the recipient; empty: do not read now.
  std::span<std::byte> room() noexcept { return requests_.room(); }
  /// n bytes arrived in room().
  void received(std::size_t n) noexcept { requests_.received(n); }
  /// At most three spans for the recipient: the chunk as far as it has arrived, or waiting answers.
  std::size_t to_write(std::span<std::span<const std::byte>, 3> out) const noexcept {
    if (chunk_sent()) {
      out[0] = std::span(answers_).first(answer_bytes_).subspan(answers_sent_);
      return out[0].empty() ? 0 : 1;
    }
    std::size_t n = 0, skip = sent_;
    const auto add = [&](std::span<const std::byte> s) {
      const std::size_t k = std::min(skip, s.size());
      skip -= k;
      if (s.size() > k) out[n++] = s.subspan(k);
    };
    add(prefix_);
    add(chunk_.first(landed_));
    if (landed_ == length_) add(std::span(zeros).first(static_cast<std::size_t>(prefix::padded(length_) - length_)));
    return n;
  }
  /// The transport took n bytes of to_write().
  void written(std::size_t n) noexcept {
    if (!chunk_sent()) {
      const std::size_t before = std::clamp<std::size_t>(sent_, prefix::bytes, prefix::bytes + length_);
      sent_ += n;
      report_.bytes += std::clamp<std::size_t>(sent_, prefix::bytes, prefix::bytes + length_) - before;
      if (chunk_sent()) ++report_.chunks;
    } else if ((answers_sent_ += n) == answer_bytes_) {
      answers_sent_ = answer_bytes_ = 0;
      if (origin_left_) ended_ = true;
    }
  }
  /// The recipient has closed its connection. That is no error if the origin knows how each transfer ended, and
  /// connection_lost otherwise.
  void hung_up() noexcept {
    if (nonce_ != 0) return fail({errc::connection_lost});
    ended_ = true;
  }

  /// The origin has closed its connection, or it is lost. That is no error if a confirmation was accepted and nothing
  /// is in flight: an origin may leave when all that it waited for has settled. The relay ends when its last answer has
  /// left.
  void origin_left(const error& why) noexcept {
    if (nonce_ != 0 || asked_count_ != 0 || report_.completed + report_.completed_unverified == 0) return fail(why);
    origin_left_ = true;
    if (chunk_sent() && answer_bytes_ == 0) ended_ = true;
  }

  /// Whether the recipient has asked for the reference.
  bool asked() const noexcept { return next_id_ != first_id_; }
  /// Payload bytes that were handed to the recipient's transport.
  std::uint64_t passed_on() const noexcept { return report_.bytes; }

  // Towards the origin: the members of transfer_role.

  /// The recipient's next request. False: there is none, or its answer would have no room.
  bool next(frame& out) noexcept {
    for (frame m; !ended_ && head(m); requests_.take()) {
      if (m.ref != ref_) {
        if (free_bytes() < short_answer) return false;
        m.status = is_newer(m.kind) ? status::unsupported : status::unknown_reference;
        m.kind = frame_kind::refused;
        answer(m);
        continue;
      }
      if (m.kind != frame_kind::cancel) {
        const std::size_t need = is_long(m.kind) ? Limits::control_frame_bytes : short_answer;
        if (asked_count_ == asked_.size() || free_bytes() < need) return false;
        asked_[asked_count_++] = {next_id_, m.id, m.kind, m.flag};
        reserved_ += need;
      } else if (m.nonce == nonce_) {
        nonce_ = 0;
      }
      if (m.kind == frame_kind::pull) {
        m.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(m.length, chunk_.size()));
        ++pulls_;
      }
      m.id = next_id_++;
      out = m;
      requests_.take();
      return true;
    }
    return false;
  }
  /// Whether the next request may be longer than 100 bytes.
  bool next_is_long() noexcept {
    frame m;
    return !ended_ && head(m) && m.kind == frame_kind::locate;
  }

  /// An answer of the origin other than a chunk. One that was not asked for, or does not fit its buffer, ends the
  /// relay.
  void on(const frame& m) noexcept {
    if (ended_) return;
    asking* const a = find(m);
    if (a == nullptr) return;
    frame back = m;
    back.id = a->recipients_id;
    if (a->kind == frame_kind::pull) --pulls_;
    if (m.kind == frame_kind::description) {
      nonce_ = m.nonce;
      version_ = m.version;
      described_ = true;
      back.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(m.length, chunk_.size()));
      if (constexpr auto own = detail::request_words<Limits>;
          own != 0 && (m.request_words == 0 || m.request_words > own))
        back.request_words = own;
    } else if (m.kind == frame_kind::located) {
      nonce_ = m.nonce;
    } else if (m.kind == frame_kind::confirmed) {
      nonce_ = 0;
      if (m.status == status::ok) ++(a->flag ? report_.completed : report_.completed_unverified);
    } else if (m.kind == frame_kind::refused && ends_a_serve(m.status)) {
      nonce_ = 0;
    }
    release(*a);
    answer(back);
  }
  /// The prefix of a chunk. Its payload is read only when the chunk before it has left the buffer. False: it was not
  /// asked for; drop the payload.
  bool on_chunk(const frame& m) noexcept {
    if (ended_) return false;
    asking* const a = find(m);
    if (a == nullptr) return false;
    if (a->kind != frame_kind::pull || m.length == 0 || m.length > chunk_.size()) {
      fail({errc::wrong_payload});
      return false;
    }
    waiting_ = m;
    waiting_.id = a->recipients_id;
    waits_ = true;
    --pulls_;
    release(*a);
    return true;
  }
  /// Memory for the rest of the chunk, at most `most` bytes. Empty: the buffer is still in use.
  prepared prepare(std::span<std::span<std::byte>> out, std::uint64_t most) noexcept {
    if (waits_) {
      if (!chunk_sent() || answer_bytes_ != 0) return {};
      prefix::write(waiting_, prefix_);
      length_ = waiting_.length;
      landed_ = sent_ = 0;
      waits_ = false;
    }
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(most, length_ - landed_));
    if (n == 0 || out.empty()) return {};
    out[0] = chunk_.subspan(landed_, n);
    return {1, n};
  }
  /// The transport has written these bytes: the first of prepare()'s.
  void landed(std::span<const std::byte> bytes) noexcept { landed_ += bytes.size(); }
  /// Whether a chunk may arrive.
  bool awaiting_chunk() const noexcept { return !ended_ && pulls_ > 0; }
  /// Whether the origin has described the reference.
  bool described() const noexcept { return described_; }
  /// Whether the relay is over.
  bool ended() const noexcept { return ended_; }
  /// The first request id that was not used towards the origin.
  std::uint32_t next_id() const noexcept { return next_id_; }

  /// Ends the relay with this error. Close the recipient's connection: part of a frame may have been sent.
  void fail(error why) noexcept {
    if (ended_) return;
    why.at = report_.bytes;
    error_ = why;
    ended_ = true;
  }
  /// The frame that tells the origin that its recipient has vanished; nothing if no transfer was in flight.
  std::optional<frame> farewell() const noexcept {
    if (nonce_ == 0) return std::nullopt;
    frame m;
    m.kind = frame_kind::cancel;
    m.ref = ref_;
    m.version = version_;
    m.nonce = nonce_;
    return m;
  }
  /// The counts, or the error; ended() must be true. The error's `at` is the payload bytes that were passed on.
  result<relayed> outcome() const noexcept {
    if (error_) return failure(*error_);
    return report_;
  }

 private:
  using prefix = detail::payload_prefix;
  /// Bytes of the longest answer but for a schema page and the ranges of named tensors.
  static constexpr std::size_t short_answer = 192;
  static constexpr std::size_t most_asked = Limits::pipelined_requests + 2;
  static constexpr std::array<std::byte, 8> zeros{};

  /// A request that the origin has not answered yet.
  struct asking {
    std::uint32_t id, recipients_id;
    frame_kind kind;
    bool flag;
  };

  /// Whether the origin has ended the serve that it refuses, so that it need not be told.
  static constexpr bool ends_a_serve(status s) noexcept {
    return s == status::withdrawn || s == status::ended || s == status::unreadable || s == status::stale ||
           s == status::already_final;
  }
  static constexpr bool is_long(frame_kind k) noexcept { return k == frame_kind::schema || k == frame_kind::locate; }
  bool chunk_sent() const noexcept {
    return sent_ == (length_ == 0 ? 0 : static_cast<std::size_t>(prefix::frame_bytes(length_)));
  }
  std::size_t free_bytes() const noexcept { return answers_.size() - answer_bytes_ - reserved_; }

  bool head(frame& m) noexcept {
    const auto there = requests_.head(m);
    if (!there) fail(there.error());
    return there && *there;
  }
  void answer(const frame& m) noexcept {
    const auto n = Framing::encode(m, std::span(answers_).subspan(answer_bytes_));
    if (!n) return fail(n.error());
    answer_bytes_ += *n;
  }
  /// The request that `m` answers. nullptr: none, which is an error unless `m` answers an earlier transfer of this
  /// connection.
  asking* find(const frame& m) noexcept {
    for (std::size_t i = 0; i < asked_count_; ++i)
      if (asked_[i].id == m.id && m.ref == ref_) return &asked_[i];
    if (m.ref == ref_ && !detail::comes_before(m.id, first_id_)) fail({errc::unexpected_frame});
    return nullptr;
  }
  void release(asking& a) noexcept {
    reserved_ -= is_long(a.kind) ? Limits::control_frame_bytes : short_answer;
    a = asked_[--asked_count_];
  }

  std::span<std::byte> chunk_;
  ref_id ref_;
  detail::relay_requests<Framing, Limits> requests_{};
  alignas(8) std::array<std::byte, Limits::control_frame_bytes + most_asked * short_answer> answers_;
  alignas(8) std::array<std::byte, prefix::bytes> prefix_;
  std::array<asking, most_asked> asked_;
  frame waiting_{};
  std::size_t answer_bytes_ = 0, answers_sent_ = 0, reserved_ = 0, asked_count_ = 0, pulls_ = 0;
  std::size_t length_ = 0, landed_ = 0, sent_ = 0;  // of the chunk in the buffer; `sent_` counts its frame
  std::uint64_t nonce_ = 0, version_ = 0;  // of a serve that the recipient has not ended
  relayed report_{};
  std::optional<error> error_;
  std::uint32_t first_id_, next_id_;
  bool waits_ = false, described_ = false, origin_left_ = false, ended_ = false;
};

}  // namespace tensorpull
