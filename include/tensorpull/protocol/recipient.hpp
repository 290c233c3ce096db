// The recipient's state machine: decides what to ask next and checks every answer against what was asked. No I/O, no clock, no heap;
// it never sees a payload byte. transfer.hpp puts a consumer and a digest behind it.
#pragma once

#include <tensorpull/chunking/concept.hpp>
#include <tensorpull/core/checked.hpp>
#include <tensorpull/core/min_max.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/protocol/messages.hpp>
#include <tensorpull/protocol/pull_request.hpp>
#include <tensorpull/protocol/receipt.hpp>
#include <tensorpull/protocol/schema_comparison.hpp>


namespace tensorpull {

/// What an accepted message means to the one who drives the machine.
enum class recipient_event : std::uint8_t { nothing, described, chunk, ignored_chunk, confirmed };

template <chunking_strategy Chunking, class Limits = default_limits>
class recipient {
 public:
  /// Ranges of one subset after adjacent ones were joined.
  static constexpr std::size_t max_ranges = 32;

  /// `first_id`: higher than any id that the same connection has used, so that late answers to an earlier transfer are told apart.
  recipient(const pull_request& request, Chunking chunking, std::uint32_t first_id) noexcept
      : request_(request), chunking_(chunking), first_id_(first_id), next_id_(first_id), expected_id_(first_id) {}

  /// The next message to send, if there is one to send now.
  bool next(message& out) noexcept {
    out = {};
    out.ref = request_.ref;
    out.version = version_ != 0 ? version_ : request_.version;
    switch (phase_) {
      case phase::start:
        out.kind = message_kind::describe;
        phase_ = phase::describing;
        break;
      case phase::describing:
        if (asked_ahead_) return false;
        asked_ahead_ = true;
        if (!request_.subset.empty()) {
          out.kind = message_kind::locate;
          out.names = request_.subset;
        } else if (!Chunking::needs_layout) {
          context_.image_bytes = ~std::uint64_t{0};  // not known yet: the owner ends the first chunk where the image ends
          fill_pull(out, chunking_.next(0, context_));
        } else {
          return false;
        }
        break;
      case phase::pulling: {
        if (range_ == range_count_ || in_flight_ >= window_) return false;
        fill_pull(out, length_at(ask_, ranges_[range_].end));
        break;
      }
      case phase::confirming:
        if (confirm_sent_) return false;
        confirm_sent_ = true;
        out.kind = message_kind::confirm;
        out.nonce = nonce_;
        out.digest = own_digest_;
        out.flag = verified_;
        break;
      case phase::comparing:
        if (page_asked_) return false;
        page_asked_ = true;
        out.kind = message_kind::schema;
        out.offset = comparison_.position();
        break;
      case phase::settled: return false;
    }
    out.id = next_id_++;
    return true;
  }

  /// Checks an answer. An error ends the transfer; `refusal` errors carry the owner's reason.
  result<recipient_event> on(const message& m) noexcept {
    // an answer to a transfer that ended before; ids may wrap
    if (m.ref != request_.ref || static_cast<std::int32_t>(m.id - first_id_) < 0) return recipient_event::nothing;
    switch (m.kind) {
      case message_kind::description: return on_description(m);
      case message_kind::located: return on_located(m);
      case message_kind::chunk: return on_chunk(m);
      case message_kind::schema_page: return on_page(m);
      case message_kind::confirmed: return on_confirmed(m);
      case message_kind::refused: return on_refused(m);
      case message_kind::end: return failure(errc::wrong_payload, received_);  // we never ask at the end
      default: return failure(errc::unexpected_message, static_cast<std::uint64_t>(m.kind));
    }
  }

  /// All bytes are there (and checked, if `verified`): confirm next.
  void confirm(std::uint64_t digest, bool verified) noexcept {
    own_digest_ = digest;
    verified_ = verified;
    phase_ = phase::confirming;
  }
  /// Whether the next message, if there is one now, may be longer than a hundred bytes.
  bool next_is_long() const noexcept { return phase_ == phase::describing && !asked_ahead_ && !request_.subset.empty(); }
  void settle() noexcept { phase_ = phase::settled; }

  bool describing() const noexcept { return phase_ == phase::start || phase_ == phase::describing; }
  bool awaiting_chunk() const noexcept { return in_flight_ > 0; }
  /// Bytes received up to the last accepted chunk, that chunk included.
  std::uint64_t received() const noexcept { return received_; }
  const tensorpull::description& description() const noexcept { return described_; }
  std::uint64_t nonce() const noexcept { return nonce_; }
  /// What the digest of everything received has to be.
  std::uint64_t expected_digest() const noexcept { return expected_digest_; }
  const pull_request& request() const noexcept { return request_; }
  std::uint32_t next_id() const noexcept { return next_id_; }

 private:
  enum class phase : std::uint8_t { start, describing, pulling, confirming, comparing, settled };

  void fill_pull(message& out, std::uint64_t length) noexcept {
    out.kind = message_kind::pull;
    out.offset = ask_;
    out.length = static_cast<std::uint32_t>(std::min(length, max_payload_bytes));
    out.fingerprint = request_.subset.empty() ? request_.fingerprint : 0;
    out.flag = request_.chunk_digests;
    if (in_flight_++ == 0) expected_id_ = next_id_;
    if (!describing()) advance(ask_, range_, out.length);
  }
  /// Length of the chunk at an image offset within a range that ends at `end`.
  std::uint64_t length_at(std::uint64_t offset, std::uint64_t end) const noexcept {
    return std::min(chunking_.next(offset, context_), std::min(end - offset, chunk_cap_));
  }
  void advance(std::uint64_t& offset, std::size_t& range, std::uint64_t length) const noexcept {
    offset += length;
    if (offset == ranges_[range].end && ++range < range_count_) offset = ranges_[range].begin;
  }

  result<recipient_event> on_description(const message& m) noexcept {
    if (phase_ != phase::describing || described_.ref) return failure(errc::unexpected_message);
    if (m.data_start < 8 || m.data_start > m.image_bytes || m.length == 0 || m.version == 0) return failure(errc::bad_frame);
    if (request_.version != 0 && m.version != request_.version) return failure(errc::stale_version);
    if (m.tensors > Limits::tensors) return failure(errc::too_large, m.tensors);
    described_ = {m.ref, m.version, m.fingerprint, m.image_bytes, m.data_start, m.tensors, m.flag};
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
    ranges_[0] = {0, m.image_bytes};
    range_count_ = 1;
    start_pulling();
    return recipient_event::described;
  }

  result<recipient_event> on_located(const message& m) noexcept {
    if (phase_ != phase::describing || request_.subset.empty() || !described_.ref) return failure(errc::unexpected_message);
    if (m.version != version_) return failure(errc::stale_version);
    if (m.ranges.size() != request_.subset.size()) return failure(errc::bad_frame);
    if (request_.fingerprint != 0 && m.fingerprint != request_.fingerprint) return compare();
    std::uint64_t total = 0, last = described_.data_start;
    for (std::size_t i = 0; i < m.ranges.size(); ++i) {
      const byte_range r = m.ranges[i];
      if (r.begin < last || r.end < r.begin || r.end > described_.image_bytes) return failure(errc::bad_frame, r.begin);
      last = r.end;
      if (r.begin == r.end) continue;
      total += r.end - r.begin;
      if (range_count_ > 0 && ranges_[range_count_ - 1].end == r.begin) ranges_[range_count_ - 1].end = r.end;
      else if (range_count_ == max_ranges) return failure(errc::does_not_fit, m.ranges.size());
      else ranges_[range_count_++] = r;
    }
    described_.fingerprint = m.fingerprint;
    described_.image_bytes = total;
    described_.data_start = 0;
    expected_digest_ = m.digest;
    nonce_ = m.nonce;
    ask_ = expected_ = range_count_ > 0 ? ranges_[0].begin : 0;
    start_pulling();
    return recipient_event::described;
  }

  result<recipient_event> on_chunk(const message& m) noexcept {
    if (phase_ == phase::comparing || phase_ == phase::settled || in_flight_ == 0) return recipient_event::ignored_chunk;
    if (m.id != expected_id_) return m.id < expected_id_ ? result<recipient_event>(recipient_event::ignored_chunk) : failure(errc::wrong_payload, received_);
    if (phase_ != phase::pulling) return failure(errc::unexpected_message, received_);
    if (m.version != version_) return failure(errc::stale_version, received_);
    const std::uint64_t wanted = length_at(expected_, ranges_[expected_range_].end);
    if (m.offset != expected_ || m.nonce != nonce_ || m.length != wanted) return failure(errc::wrong_payload, received_);
    advance(expected_, expected_range_, wanted);
    received_ += wanted;
    --in_flight_;
    ++expected_id_;
    return recipient_event::chunk;
  }

  result<recipient_event> on_confirmed(const message& m) noexcept {
    if (phase_ != phase::confirming || !confirm_sent_ || m.nonce != nonce_ || m.version != version_) return failure(errc::unexpected_message);
    phase_ = phase::settled;
    if (m.status != status::ok) return failure(to_errc(m.status), received_);
    return recipient_event::confirmed;
  }

  result<recipient_event> on_refused(const message& m) noexcept {
    if (phase_ == phase::comparing || phase_ == phase::settled) return recipient_event::nothing;
    if (m.status == status::schema_mismatch && described_.ref) return compare();
    error_name name{};
    if (m.status == status::bad_request && describing() && m.offset < request_.subset.size()) name = request_.subset[static_cast<std::size_t>(m.offset)];
    return failure(to_errc(m.status), received_, name);
  }

  /// The schemas differ: ask for the other one, page by page, to name the first tensor that differs.
  result<recipient_event> compare() noexcept {
    if (request_.schema == nullptr) return failure(errc::schema_mismatch);
    phase_ = phase::comparing;
    return recipient_event::nothing;
  }

  result<recipient_event> on_page(const message& m) noexcept {
    if (phase_ != phase::comparing || !page_asked_) return failure(errc::unexpected_message);
    const auto more = comparison_.take(m, *request_.schema, described_.tensors, !request_.subset.empty());
    if (!more) return failure(more.error());
    page_asked_ = false;
    return recipient_event::nothing;
  }

  void start_pulling() noexcept {
    phase_ = phase::pulling;
    if (in_flight_ == 1) {  // the pull that travelled with the description; the owner has shortened it to what length_at gives now
      advance(ask_, range_, length_at(0, ranges_[0].end));
    }
  }

  pull_request request_;
  [[no_unique_address]] Chunking chunking_;
  chunk_context context_{};
  tensorpull::description described_{};
  byte_range ranges_[max_ranges]{};
  std::size_t range_count_ = 0, range_ = 0, expected_range_ = 0;
  std::uint64_t ask_ = 0, expected_ = 0, received_ = 0;  // image offsets of the next request and the next answer; bytes received
  std::uint64_t version_ = 0, nonce_ = 0, expected_digest_ = 0, own_digest_ = 0;
  std::uint64_t chunk_cap_ = max_payload_bytes;
  std::uint32_t first_id_, next_id_, expected_id_, in_flight_ = 0, window_ = 1;
  schema_comparison comparison_{};
  phase phase_ = phase::start;
  bool asked_ahead_ = false, confirm_sent_ = false, page_asked_ = false, verified_ = false;
};

}  // namespace tensorpull
