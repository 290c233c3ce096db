// The recipient's state machine: it decides what to ask next and checks every answer against what was asked. It has no
// I/O, no clock and no heap, and it never sees a byte of payload. transfer.hpp adds a consumer and the digests.
#pragma once

#include <tensorpull/chunking/concept.hpp>
#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/core/checked.hpp>
#include <tensorpull/core/limits.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/framing/frame.hpp>
#include <tensorpull/protocol/recipient/detail/chunker.hpp>
#include <tensorpull/protocol/recipient/detail/request_id.hpp>
#include <tensorpull/protocol/recipient/detail/requested_part.hpp>
#include <tensorpull/protocol/recipient/detail/schema_comparison.hpp>
#include <tensorpull/protocol/recipient/detail/wanted_ranges.hpp>
#include <tensorpull/protocol/recipient/pull_request.hpp>
#include <tensorpull/protocol/recipient/recipient_event.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/chrono.hpp>

#include <cstdint>
#include <utility>

namespace tensorpull {

/// The frames of one transfer. `Chunking` decides where requests end, `Limits` how much is accepted from the other
/// side.
///
/// Named tensors are asked for in parts: as many names as one request carries, and whose ranges there is memory for. Of
/// several parts each is some tensors of our schema, in image order; it has a digest of its own, and the next one is
/// asked for when all of it is there (next_part()). An owner sees a part as it sees any named tensors.
template <chunking_strategy Chunking, class Limits = default_limits>
class recipient {
 public:
  /// `first_id`: higher than any id that the same connection has used, so that late answers to an earlier transfer are
  /// told apart.
  recipient(const pull_request& request, Chunking chunking, std::uint32_t first_id) noexcept
      : request_(request), chunker_(chunking), first_id_(first_id), next_id_(first_id), expected_id_(first_id) {
    part_.normalise(request_);
  }

  /// Tells a strategy that adapts how the transfer gets on. Lengths of chunks on their way stay, since an answer is
  /// compared with them: so a request ahead of the description has to be answered first, and of a subset, whose parts
  /// may arrive in any order, every request.
  void measured(std::uint64_t landed, std::chrono::nanoseconds time) noexcept
    requires detail::adapts<Chunking>
  {
    if (describing() || (request_.by_name() && in_flight_ > 0)) return;
    chunker_.measured({ask_.offset, expected_.offset, landed, time});
  }

  /// Bounds how often the owner is asked to describe again.
  detail::serves_anew anew{};

  /// The next request to send. False: there is none now.
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
        if (Limits::slices && one_by_one_ && !description_came_) return false;
        if (std::exchange(asked_ahead_, true)) return false;
        if (request_.by_name()) {
          part_.ask(out, request_);
        } else if (!Chunking::needs_layout) {
          fill_pull(out, chunker_.ahead(ask_));
        } else return false;
        break;
      case phase::pulling:
        if (chunker_.wanted.over(ask_) || in_flight_ >= window_) return false;
        fill_pull(out, chunker_.length(ask_, request_));
        break;
      case phase::confirming:
        if (std::exchange(request_sent_, true)) return false;
        out.kind = frame_kind::confirm;
        out.recipient = request_.recipient;
        out.nonce = nonce_;
        out.digest = own_digest_;
        out.flag = verified_;
        break;
      case phase::comparing:
        if (std::exchange(request_sent_, true)) return false;
        out.kind = frame_kind::schema;
        out.offset = comparison_.position();
        break;
      case phase::settled: return false;
    }
    out.id = next_id_++;
    return true;
  }

  /// Checks an answer. An error ends the transfer; for a refusal it is the owner's reason.
  result<recipient_event> on(const frame& m) noexcept {
    if (m.ref != request_.ref || detail::comes_before(m.id, first_id_))
      return recipient_event::nothing;  // an answer to a transfer that ended before
    if (m.kind != frame_kind::chunk && !detail::comes_before(m.id, next_id_))
      return failure(errc::unexpected_frame, static_cast<std::uint64_t>(m.kind));
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

  /// Starts again, on another connection or after giving up all requests in flight. It continues after the first
  /// `received` wanted bytes, with the version that was begun.
  void restart(std::uint64_t received) noexcept {
    if (phase_ == phase::confirming || phase_ == phase::comparing) {
      give_up_requests();
      request_sent_ = false;
    } else if (phase_ != phase::settled) {
      start_over(confirms_ ? before_last_byte() : received);
    }
  }
  /// Continues an earlier program's transfer; call it before the first request. `version`: the one that the first
  /// `received` bytes belong to.
  void resume(std::uint64_t version, std::uint64_t received) noexcept {
    version_ = version;
    received_ = received;
    ask_ = expected_ = {received, 0};
  }

  /// All bytes are there, with the digest `own` (which was compared if `verified`): the next request is the
  /// confirmation.
  void confirm(std::uint64_t own, bool verified) noexcept {
    own_digest_ = own;
    verified_ = verified;
    confirms_ = true;
    phase_ = phase::confirming;
    request_sent_ = false;
  }
  /// All bytes up to part_end() are there and right, and that is not the end: the next request names the next part.
  void next_part() noexcept {
    part_.go_on(request_);
    ask_for_part();
  }
  /// The position behind the last wanted byte that the owner was asked for by name; without names, the end.
  std::uint64_t part_end() const noexcept { return chunker_.wanted.total(); }
  /// Whether nothing follows part_end().
  bool is_last_part() const noexcept { return part_.is_last(request_); }
  /// Whether the wanted bytes arrive in several parts, each with a digest.
  bool in_parts() const noexcept { return part_.several(); }
  /// Whether the next request, if there is one now, may be longer than 100 bytes.
  bool next_is_long() const noexcept { return phase_ == phase::describing && !asked_ahead_ && request_.by_name(); }
  /// Ends it: no more requests, and answers are ignored.
  void settle() noexcept { phase_ = phase::settled; }
  /// Whether the owner has not described the reference yet since the start or the last restart().
  bool describing() const noexcept { return phase_ == phase::start || phase_ == phase::describing; }
  /// Whether a chunk may arrive.
  bool awaiting_chunk() const noexcept { return in_flight_ > 0; }
  /// The owner's description; of named tensors its sizes count only the wanted bytes. Empty before.
  const tensorpull::description& description() const noexcept { return described_; }
  /// The owner's number for this serve; 0 before the description.
  std::uint64_t nonce() const noexcept { return nonce_; }
  /// The digest that the wanted bytes have to have, by the owner's word: the version, or of named tensors a digest of
  /// their own, part by part.
  std::uint64_t expected_digest() const noexcept { return request_.by_name() ? part_.digest() : version_; }
  /// The digest of the bytes that arrived, as confirm() was given it.
  std::uint64_t own_digest() const noexcept { return own_digest_; }
  /// Whether that digest was compared.
  bool verified() const noexcept { return verified_; }
  /// Tells the owner that this serve is over for us.
  frame farewell() const noexcept {
    return {.kind = frame_kind::cancel,
            .ref = request_.ref,
            .version = version_,
            .nonce = nonce_,
            .recipient = request_.recipient};
  }
  /// The request.
  const pull_request& request() const noexcept { return request_; }
  /// The first request id that was not used.
  std::uint32_t next_id() const noexcept { return next_id_; }
  /// After `busy`: how long the owner asks us to wait, in milliseconds.
  std::chrono::milliseconds delay() const noexcept { return std::chrono::milliseconds(delay_ms_); }

 protected:
  using phase = detail::recipient_phase;

  /// Whether `m` answers the last request, of which there is one at a time while confirming or comparing.
  bool answers_last(const frame& m) const noexcept { return request_sent_ && m.id == next_id_ - 1; }

  /// Answers to those in flight are ignored.
  void give_up_requests() noexcept {
    first_id_ = expected_id_ = next_id_;
    in_flight_ = 0;
  }
  /// Asks for a description, and then for what follows the first `received` wanted bytes.
  void start_over(std::uint64_t received) noexcept {
    give_up_requests();
    received_ = received;
    phase_ = phase::start;
    description_came_ = asked_ahead_ = false;
    chunker_.start_over();
    one_by_one_ = Limits::slices && request_.by_name() && !part_.any_located();
    ask_ = expected_ = {received, 0};
  }
  /// Where to start over if everything is here and the owner does not know it: it takes a confirmation after it has
  /// served the last byte.
  std::uint64_t before_last_byte() const noexcept {
    return std::max(part_.begin(request_), described_.image_bytes - std::min<std::uint64_t>(described_.image_bytes, 1));
  }
  recipient_event ask_for_part() noexcept {
    asked_ahead_ = false;
    phase_ = phase::describing;
    first_id_ = next_id_ - 1;  // as if the description had been asked for just now
    return recipient_event::answered;
  }
  /// The fields of a request for the bytes of a chunk, which lie in `runs`.
  [[gnu::noinline]] void ask_for(frame& out, std::uint64_t offset, std::uint64_t length,
                                 typename detail::wanted_ranges<Limits::slices>::runs_type runs) const noexcept {
    out.kind = frame_kind::pull;
    out.offset = offset;
    out.length = static_cast<std::uint32_t>(std::min(length, max_payload_bytes));
    out.fingerprint = request_.by_name() ? 0 : request_.fingerprint;
    out.chunk_digest = confirms_ ? digest_kind::none : request_.chunk_digest;  // a byte that is thrown away needs none
    if constexpr (Limits::slices)
      if (runs.apart()) {
        out.fingerprint = runs.word();
        out.flag = true;
      }
  }
  void fill_pull(frame& out, std::uint64_t length) noexcept {
    ask_for(out, ask_.offset, length, chunker_.wanted.runs(ask_, length));
    if (in_flight_++ == 0) expected_id_ = next_id_;
    if (!describing()) chunker_.wanted.advance(ask_, out.length);
    if (chunker_.is_all_in_one(length)) out.length = all_in_one_chunk;
  }

  result<recipient_event> on_description(const frame& m) noexcept {
    if (phase_ != phase::describing || m.id != first_id_ || description_came_) return failure(errc::unexpected_frame);
    if (m.data_start < 8 || m.data_start > m.image_bytes || m.length == 0 || m.version == 0)
      return failure(errc::bad_frame);
    nonce_ = m.nonce;
    if (version_ != 0 ? m.version != version_ : request_.version != 0 && m.version != request_.version)
      return failure(errc::stale_version, received_);
    if (m.tensors > Limits::tensors) return failure(errc::too_large, m.tensors);
    const bool again = described_.ref == m.ref;
    // the same version means the same bytes; an owner that claims otherwise must not move what has landed
    if (!chunker_.describe({m.image_bytes, m.data_start, request_.schema}, m.length, again))
      return failure(errc::bad_frame, received_);
    description_came_ = true;
    if (!again) described_ = {m.ref, m.version, m.fingerprint, m.image_bytes, m.data_start, m.tensors, m.flag};
    version_ = m.version;
    const std::uint32_t window = request_.window != 0 ? request_.window : std::uint32_t{Limits::pipelined_requests};
    window_ = std::max<std::uint32_t>(1, std::min(window, std::min<std::uint32_t>(m.window, Limits::window)));
    if constexpr (Limits::slices) {
      if (const auto ok = part_.takes(m.request_words, request_, received_); !ok) return failure(ok.error());
    } else if (!request_.slices.empty()) {
      return failure(errc::invalid_argument, 0, request_.slices[0].name);
    }
    if (request_.by_name()) return recipient_event::answered;
    if (request_.fingerprint != 0 && m.fingerprint != request_.fingerprint) return compare();
    if (const auto ok = chunker_.want_all(request_); !ok) return failure(ok.error());
    if (received_ > chunker_.wanted.total()) return failure(errc::bad_frame, received_);
    return start_pulling(again);
  }

  result<recipient_event> on_located(const frame& m) noexcept {
    if (phase_ != phase::describing || !request_.by_name() || !description_came_ || m.id != first_id_ + 1)
      return failure(errc::unexpected_frame);
    if (m.version != version_) return failure(errc::stale_version, received_);
    const auto located = part_.locate(m, request_, chunker_.image(), received_, chunker_.wanted, described_);
    if (!located) return failure(located.error());
    if (*located == decltype(part_)::answer::differs) return compare();
    if (*located == decltype(part_)::answer::too_many_ranges) return ask_for_part();
    nonce_ = m.nonce;
    return start_pulling(*located == decltype(part_)::answer::again);
  }

  result<recipient_event> on_chunk(const frame& m) noexcept {
    if (phase_ == phase::comparing || phase_ == phase::settled || in_flight_ == 0)
      return recipient_event::ignored_chunk;
    if (detail::comes_before(m.id, expected_id_)) return recipient_event::ignored_chunk;
    if (m.id != expected_id_) return failure(errc::wrong_payload, received_);
    if (phase_ != phase::pulling) return failure(errc::unexpected_frame, received_);
    if (m.version != version_) return failure(errc::stale_version, received_);
    const std::uint64_t length = chunker_.length(expected_, request_);
    if (chunker_.is_all_in_one(length) && m.length < length)  // the owner does not know all_in_one_chunk
      return failure(errc::does_not_fit, chunker_.image().image_bytes);
    if (m.offset != expected_.offset || m.length != length) return failure(errc::wrong_payload, received_);
    if (m.nonce != nonce_) {  // another serve: the owner has published the same content again, or had forgotten us
      if (!anew.begins()) return failure(errc::wrong_payload, received_);
      start_over(confirms_ ? before_last_byte() : received_);
      return recipient_event::ignored_chunk;
    }
    chunker_.wanted.advance(expected_, length);
    received_ += length;
    --in_flight_;
    ++expected_id_;
    if (!confirms_) {
      anew = {};
      return recipient_event::chunk;
    }
    phase_ = phase::confirming;  // this serve has reached its end, and everything is here already
    request_sent_ = false;
    return recipient_event::ignored_chunk;
  }

  result<recipient_event> on_confirmed(const frame& m) noexcept {
    if (phase_ != phase::confirming || !answers_last(m) || m.nonce != nonce_ || m.version != version_)
      return failure(errc::unexpected_frame);
    phase_ = phase::settled;
    return m.status == status::ok ? result<recipient_event>(recipient_event::confirmed)
                                  : failure(to_errc(m.status), received_);
  }

  result<recipient_event> on_refused(const frame& m) noexcept {
    if (phase_ == phase::settled) return recipient_event::nothing;
    if (phase_ == phase::comparing)  // pulls that were in flight are refused, too
      return answers_last(m) ? result<recipient_event>(failure(errc::schema_mismatch, received_))
                             : recipient_event::nothing;
    if (m.status == status::schema_mismatch && described_.ref) return compare();
    if (m.status == status::busy) {
      delay_ms_ = m.delay_ms;
      give_up_requests();
      return recipient_event::busy;
    }
    if (confirms_ && describing() && m.status == status::already_final) {
      phase_ = phase::settled;
      return recipient_event::confirmed;
    }
    // It does not know this serve: it was started again, or has forgotten us. If it knew us by a connection alone, it
    // would count us twice.
    if (phase_ == phase::confirming && m.status == status::bad_request && request_.recipient && anew.begins()) {
      start_over(before_last_byte());
      return recipient_event::answered;
    }
    const bool first_name = m.status == status::bad_request && m.offset == 0 && phase_ == phase::describing &&
                            request_.by_name() && description_came_ && m.id == first_id_ + 1;
    if (first_name && part_.fewer(request_, received_)) return ask_for_part();
    const bool a_name = (m.status == status::bad_request || m.status == status::out_of_range) && describing();
    const std::uint32_t reason = m.status == status::withdrawn ? m.delay_ms : 0;
    return failure(to_errc(m.status), received_, a_name ? part_.name(request_, m.offset) : error_name{},
                   static_cast<std::int32_t>(reason));
  }

  /// The schemas differ: asks for the other one, page by page, to name the first tensor that differs.
  result<recipient_event> compare() noexcept {
    phase_ = phase::comparing;
    request_sent_ = false;
    return request_.schema != nullptr ? result<recipient_event>(recipient_event::answered)
                                      : failure(errc::schema_mismatch);
  }

  result<recipient_event> on_page(const frame& m) noexcept {
    if (phase_ != phase::comparing || !answers_last(m)) return failure(errc::unexpected_frame);
    if (const auto more = comparison_.template take<Limits::slices>(m, request_, described_.tensors); !more)
      return failure(more.error());
    request_sent_ = false;
    return recipient_event::answered;
  }

  result<recipient_event> start_pulling(bool again) noexcept {
    const bool asked = in_flight_ == 1;  // ahead of the description; the owner shortens it to what is cut now
    ask_ = expected_ = chunker_.wanted.at(received_);
    if (asked && chunker_.wanted.over(ask_)) return failure(errc::bad_frame, received_);
    phase_ = confirms_ && chunker_.wanted.over(ask_) ? phase::confirming : phase::pulling;
    request_sent_ = false;
    if (asked) chunker_.wanted.advance(ask_, chunker_.length(ask_, request_));
    return again ? recipient_event::described_again : recipient_event::described;
  }

  pull_request request_;
  detail::chunker<Chunking, Limits> chunker_;
  tensorpull::description described_{};
  detail::wanted_position ask_{}, expected_{};  // of the next request and the next answer
  std::uint64_t received_ = 0;
  std::uint64_t version_ = 0, nonce_ = 0, own_digest_ = 0;
  std::uint32_t first_id_, next_id_, expected_id_, in_flight_ = 0, window_ = 1, delay_ms_ = 0;
  detail::requested_part<Limits> part_{};
  detail::schema_comparison comparison_{};
  phase phase_ = phase::start;
  bool description_came_ = false, asked_ahead_ = false, request_sent_ = false, verified_ = false;
  bool one_by_one_ = false;  // an owner that was asked for names ahead of its description may have hung up over that
  bool confirms_ = false;  // everything is here, and the owner has to hear of it
};

}  // namespace tensorpull
