// The recipient's state machine: decides what to ask next and checks every answer against what was asked. No I/O, no clock, no heap;
// it never sees a payload byte. transfer.hpp puts a consumer and a digest behind it.
#pragma once

#include <tensorpull/chunking/concept.hpp>
#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/core/checked.hpp>
#include <tensorpull/core/ids.hpp>
#include <tensorpull/core/limits.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/framing/frame.hpp>
#include <tensorpull/image/schema.hpp>
#include <tensorpull/integrity/concept.hpp>
#include <tensorpull/protocol/recipient/detail/schema_comparison.hpp>
#include <tensorpull/protocol/recipient/detail/wanted_ranges.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace tensorpull {

/// What a recipient asks for and expects.
struct pull_request {
  ref_id ref{};
  std::uint64_t version = 0;                      ///< 0: whatever is published now
  std::uint64_t fingerprint = 0;                  ///< 0: any schema
  const image_schema* schema = nullptr;           ///< own schema: to cut by tensors and to name the first difference; borrowed
  std::span<const std::string_view> subset{};     ///< names of the tensors wanted, all of `schema`'s; empty: the whole image; borrowed
  std::uint32_t window = 4;                       ///< requests in flight; the owner may allow fewer
  digest_kind chunk_digest = digest_kind::none;   ///< that every chunk shall carry
  recipient_id recipient{};                       ///< us: the same over reconnections; none: the connection is all there is
};

/// What an accepted frame means to whoever drives a recipient.
enum class recipient_event : std::uint8_t {
  nothing,
  described,        ///< data may come; the consumer has not begun yet
  described_again,  ///< after restart(): the same as before
  chunk,            ///< land it
  ignored_chunk,    ///< nobody waits for it: throw it away
  confirmed,
  busy,             ///< nothing more is asked before restart()
};

/// One transfer, as far as frames go. `Chunking` says where requests end, `Limits` what is believed of the other side.
template <chunking_strategy Chunking, class Limits = default_limits>
class recipient {
 public:
  /// `first_id`: higher than any id that the same connection has used, so that late answers to an earlier transfer are told apart.
  recipient(const pull_request& request, Chunking chunking, std::uint32_t first_id) noexcept
      : request_(request), chunking_(chunking), first_id_(first_id), next_id_(first_id), expected_id_(first_id) {}

  /// The next request to send, if there is one to send now.
  bool next(frame& out) noexcept {
    out = {};
    out.ref = request_.ref;
    out.version = version_ != 0 ? version_ : request_.version;
    switch (phase_) {
      case phase::start:
        out.kind = frame_kind::describe;
        out.recipient = request_.recipient;
        phase_ = phase::describing;
        break;
      case phase::describing:
        if (std::exchange(asked_ahead_, true)) return false;
        if (!request_.subset.empty()) {
          out.kind = frame_kind::locate;
          out.names = request_.subset;
        } else if (!Chunking::needs_layout) {
          if (!described_.ref) context_.image_bytes = ~std::uint64_t{0};  // not known yet: the owner ends the chunk where the image ends
          fill_pull(out, chunking_.next(ask_.offset, context_));
        } else {
          return false;
        }
        break;
      case phase::pulling:
        if (wanted_.over(ask_) || in_flight_ >= window_) return false;
        fill_pull(out, length_at(ask_));
        break;
      case phase::confirming:
        if (std::exchange(confirm_sent_, true)) return false;
        out.kind = frame_kind::confirm;
        out.recipient = request_.recipient;
        out.nonce = nonce_;
        out.digest = own_digest_;
        out.flag = verified_;
        break;
      case phase::comparing:
        if (std::exchange(page_asked_, true)) return false;
        out.kind = frame_kind::schema;
        out.offset = comparison_.position();
        break;
      case phase::settled: return false;
    }
    out.id = next_id_++;
    return true;
  }

  /// Checks an answer. An error ends the transfer; `refusal` errors carry the owner's reason.
  result<recipient_event> on(const frame& m) noexcept {
    // an answer to a transfer that ended before; ids may wrap
    if (m.ref != request_.ref || static_cast<std::int32_t>(m.id - first_id_) < 0) return recipient_event::nothing;
    switch (m.kind) {
      case frame_kind::description: return on_description(m);
      case frame_kind::located: return on_located(m);
      case frame_kind::chunk: return on_chunk(m);
      case frame_kind::schema_page: return on_page(m);
      case frame_kind::confirmed: return on_confirmed(m);
      case frame_kind::refused: return on_refused(m);
      case frame_kind::end: return failure(errc::wrong_payload, received_);  // we never ask at the end
      default: return failure(errc::unexpected_frame, static_cast<std::uint64_t>(m.kind));
    }
  }

  /// Starts again: on another connection, or with all that was asked for given up. Goes on behind the first `received` wanted bytes, with
  /// the version that was begun.
  void restart(std::uint64_t received) noexcept {
    first_id_ = expected_id_ = next_id_;
    in_flight_ = 0;
    received_ = received;
    if (phase_ == phase::confirming) confirm_sent_ = false;
    else if (phase_ == phase::comparing) page_asked_ = false;
    else if (phase_ != phase::settled) phase_ = phase::start, asked_ahead_ = false, ask_ = expected_ = {received, 0};
  }
  /// The same across programs: before the first request. `version` is what the bytes that are there belong to.
  void resume(std::uint64_t version, std::uint64_t received) noexcept {
    version_ = version;
    received_ = received;
    ask_ = expected_ = {received, 0};
  }

  /// All bytes are there (and checked, if `verified`): confirm next.
  void confirm(std::uint64_t own, bool verified) noexcept {
    own_digest_ = own;
    verified_ = verified;
    phase_ = phase::confirming;
  }
  /// Whether the next request, if there is one now, may be longer than a hundred bytes.
  bool next_is_long() const noexcept { return phase_ == phase::describing && !asked_ahead_ && !request_.subset.empty(); }
  void settle() noexcept { phase_ = phase::settled; }
  bool describing() const noexcept { return phase_ == phase::start || phase_ == phase::describing; }
  bool awaiting_chunk() const noexcept { return in_flight_ > 0; }
  const tensorpull::description& description() const noexcept { return described_; }
  std::uint64_t nonce() const noexcept { return nonce_; }
  std::uint64_t expected_digest() const noexcept { return expected_digest_; }  ///< of everything received
  const pull_request& request() const noexcept { return request_; }
  std::uint32_t next_id() const noexcept { return next_id_; }
  std::uint32_t delay_ms() const noexcept { return delay_ms_; }  ///< after `busy`: how long the owner asks us to wait

 private:
  enum class phase : std::uint8_t {
    start,
    describing,
    pulling,
    confirming,
    comparing,
    settled,
  };

  void fill_pull(frame& out, std::uint64_t length) noexcept {
    out.kind = frame_kind::pull;
    out.offset = ask_.offset;
    out.length = static_cast<std::uint32_t>(std::min(length, max_payload_bytes));
    out.fingerprint = request_.subset.empty() ? request_.fingerprint : 0;
    out.chunk_digest = request_.chunk_digest;
    if (in_flight_++ == 0) expected_id_ = next_id_;
    if (!describing()) wanted_.advance(ask_, out.length);
  }
  std::uint64_t length_at(const detail::wanted_ranges::position& p) const noexcept {
    return std::min(chunking_.next(p.offset, context_), std::min(wanted_.end(p) - p.offset, chunk_cap_));
  }

  result<recipient_event> on_description(const frame& m) noexcept {
    if (phase_ != phase::describing || described_id_ == first_id_) return failure(errc::unexpected_frame);
    if (m.data_start < 8 || m.data_start > m.image_bytes || m.length == 0 || m.version == 0) return failure(errc::bad_frame);
    if (version_ != 0 ? m.version != version_ : request_.version != 0 && m.version != request_.version) return failure(errc::stale_version, received_);
    if (m.tensors > Limits::tensors) return failure(errc::too_large, m.tensors);
    const bool again = described_.ref == m.ref;
    // the same version is the same bytes; an owner that says otherwise must not move what has landed
    if (again && (m.image_bytes != context_.image_bytes || m.data_start != context_.data_start)) return failure(errc::bad_frame, received_);
    described_id_ = first_id_;
    if (!again) described_ = {m.ref, m.version, m.fingerprint, m.image_bytes, m.data_start, m.tensors, m.flag};
    version_ = m.version;
    nonce_ = m.nonce;
    expected_digest_ = m.version;
    context_ = {m.image_bytes, m.data_start, request_.schema};
    chunk_cap_ = std::min<std::uint64_t>(m.length, max_payload_bytes);
    window_ = std::max<std::uint32_t>(1, std::min(request_.window, std::min<std::uint32_t>(m.window, Limits::window)));
    if (!request_.subset.empty()) return recipient_event::nothing;
    if (request_.fingerprint != 0 && m.fingerprint != request_.fingerprint) return compare();
    if constexpr (Chunking::max_chunk_bytes == 0)
      if (m.image_bytes > chunk_cap_) return failure(errc::does_not_fit, m.image_bytes);
    wanted_.all(m.image_bytes);
    if (received_ > wanted_.total()) return failure(errc::bad_frame, received_);
    return start_pulling(again);
  }

  result<recipient_event> on_located(const frame& m) noexcept {
    if (phase_ != phase::describing || request_.subset.empty() || described_id_ != first_id_) return failure(errc::unexpected_frame);
    if (m.version != version_) return failure(errc::stale_version, received_);
    if (m.ranges.size() != request_.subset.size()) return failure(errc::bad_frame);
    if (request_.fingerprint != 0 && m.fingerprint != request_.fingerprint) return compare();
    if (const auto ok = wanted_.these(m.ranges, context_.data_start, context_.image_bytes); !ok) return failure(ok.error());
    const bool again = std::exchange(located_, true);
    const bool same = !again || (wanted_.total() == described_.image_bytes && m.digest == expected_subset_);
    if (!same || received_ > wanted_.total()) return failure(errc::bad_frame, received_);
    described_.fingerprint = m.fingerprint;
    described_.image_bytes = wanted_.total();
    described_.data_start = 0;
    expected_digest_ = expected_subset_ = m.digest;
    nonce_ = m.nonce;
    return start_pulling(again);
  }

  result<recipient_event> on_chunk(const frame& m) noexcept {
    if (phase_ == phase::comparing || phase_ == phase::settled || in_flight_ == 0) return recipient_event::ignored_chunk;
    if (m.id != expected_id_) return m.id < expected_id_ ? result<recipient_event>(recipient_event::ignored_chunk) : failure(errc::wrong_payload, received_);
    if (phase_ != phase::pulling) return failure(errc::unexpected_frame, received_);
    if (m.version != version_) return failure(errc::stale_version, received_);
    const std::uint64_t wanted = length_at(expected_);
    if (m.offset != expected_.offset || m.nonce != nonce_ || m.length != wanted) return failure(errc::wrong_payload, received_);
    wanted_.advance(expected_, wanted);
    received_ += wanted;
    --in_flight_;
    ++expected_id_;
    return recipient_event::chunk;
  }

  result<recipient_event> on_confirmed(const frame& m) noexcept {
    if (phase_ != phase::confirming || !confirm_sent_ || m.nonce != nonce_ || m.version != version_) return failure(errc::unexpected_frame);
    phase_ = phase::settled;
    return m.status == status::ok ? result<recipient_event>(recipient_event::confirmed) : failure(to_errc(m.status), received_);
  }

  result<recipient_event> on_refused(const frame& m) noexcept {
    if (phase_ == phase::comparing || phase_ == phase::settled) return recipient_event::nothing;
    if (m.status == status::schema_mismatch && described_.ref) return compare();
    if (m.status == status::busy) {
      delay_ms_ = m.delay_ms;
      return first_id_ = next_id_, in_flight_ = 0, recipient_event::busy;  // what else was asked for is not waited for
    }
    const bool a_name = m.status == status::bad_request && describing() && m.offset < request_.subset.size();
    return failure(to_errc(m.status), received_, a_name ? error_name(request_.subset[static_cast<std::size_t>(m.offset)]) : error_name{});
  }

  /// The schemas differ: ask for the other one, page by page, to name the first tensor that differs.
  result<recipient_event> compare() noexcept {
    phase_ = phase::comparing;
    return request_.schema != nullptr ? result<recipient_event>(recipient_event::nothing) : failure(errc::schema_mismatch);
  }

  result<recipient_event> on_page(const frame& m) noexcept {
    if (phase_ != phase::comparing || !page_asked_) return failure(errc::unexpected_frame);
    if (const auto more = comparison_.take(m, *request_.schema, described_.tensors, !request_.subset.empty()); !more) return failure(more.error());
    page_asked_ = false;
    return recipient_event::nothing;
  }

  result<recipient_event> start_pulling(bool again) noexcept {
    const bool asked = in_flight_ == 1;  // the pull that travelled with the description; the owner has shortened it to what length_at gives now
    ask_ = expected_ = wanted_.at(received_);
    if (asked && wanted_.over(ask_)) return failure(errc::bad_frame, received_);
    phase_ = phase::pulling;
    if (asked) wanted_.advance(ask_, length_at(ask_));
    return again ? recipient_event::described_again : recipient_event::described;
  }

  pull_request request_;
  [[no_unique_address]] Chunking chunking_;
  chunk_context context_{};
  tensorpull::description described_{};
  detail::wanted_ranges wanted_{};
  detail::wanted_ranges::position ask_{}, expected_{};  // of the next request and the next answer
  std::uint64_t received_ = 0;
  std::uint64_t version_ = 0, nonce_ = 0, expected_digest_ = 0, expected_subset_ = 0, own_digest_ = 0;
  std::uint64_t chunk_cap_ = max_payload_bytes;
  std::uint32_t first_id_, next_id_, expected_id_, described_id_ = 0, in_flight_ = 0, window_ = 1, delay_ms_ = 0;
  detail::schema_comparison comparison_{};
  phase phase_ = phase::start;
  bool asked_ahead_ = false, confirm_sent_ = false, page_asked_ = false, verified_ = false, located_ = false;
};

}  // namespace tensorpull
