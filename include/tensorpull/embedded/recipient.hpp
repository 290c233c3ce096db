// A whole recipient of one model for a small machine: stop and wait, one request at a time, frames read where they lie.
// It sends the same on the wire as the recipients of hosts do (protocol/recipient, protocol/datagrams), in a fifth of
// their code.
#pragma once

#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/ids.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/embedded/landing.hpp>
#include <tensorpull/framing/detail/control_words.hpp>
#include <tensorpull/framing/detail/payload_prefix.hpp>
#include <tensorpull/framing/detail/piece_prefix.hpp>
#include <tensorpull/framing/frame.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace tensorpull {

/// The reference that an embedded_recipient pulls, and how long it waits. Times are milliseconds of the clock that
/// next() and received() are given, at most 2^30 (12 days).
struct embedded_pull {
  ref_id ref{};  ///< The reference to pull.
  std::uint64_t version = 0;  ///< 0: whatever is published now.
  /// The ID of this recipient, the same after a restart of this machine, so that the owner counts it once. None: a
  /// random one.
  recipient_id recipient{};
  /// It gives up after so long without progress. A busy owner may put it off for as long in all.
  std::uint32_t timeout_ms = 60'000;
  /// A request is sent again after so long: longer than a chunk and its request take on the serial line.
  std::uint32_t retry_ms = 1'000;
  bool unverified = false;  ///< An image without a digest is accepted, too.
};

namespace detail::embedded {
// The one layout of every frame here: segment table, root pointer, the Frame's seven data words, its pointer; then a
// payload, or a body of data words. framing/detail/control_words.hpp has what is in them, kind by kind.
inline constexpr std::size_t frame_bytes = payload_prefix::bytes;
inline constexpr std::size_t description_bytes = short_frame_bytes;
inline constexpr std::size_t own_words = byte_of<frame_kind::pull, &frame::ref>;  // behind the Frame's first word
inline constexpr std::size_t pointer = frame_bytes - 8;
static_assert(size_of_frame.data == payload_prefix::frame_data_words && size_of_frame.pointers == 1 &&
              byte_of<frame_kind::description, &frame::ref> == frame_bytes);

/// The words of a request that follow its version: which of them has a field.
inline constexpr std::size_t first_field = own_words + 24, fields = 3;
template <frame_kind Kind, auto Member>
inline constexpr std::size_t field_of_request = (byte_of<Kind, Member> - first_field) / 8;
// A request for a description has its recipient where the others have the version; a cancel has its status above its
// reason.
static_assert(byte_of<frame_kind::describe, &frame::recipient> == byte_of<frame_kind::pull, &frame::version> &&
              byte_of<frame_kind::cancel, &frame::status> == byte_of<frame_kind::cancel, &frame::reason> + 4);

/// Writes a frame of 80 bytes, all but the words behind its first.
inline void begin_frame(std::byte* out, std::uint32_t id, std::uint32_t kind_and_flag) noexcept {
  std::memset(out, 0, frame_bytes);
  store_le64(out, payload_prefix::fixed_words << 32);
  store_le64(out + 8, payload_prefix::root_pointer);
  store_le64(out + 16, id | std::uint64_t{kind_and_flag} << 32);
}
inline std::uint32_t load32(const std::byte* p) noexcept { return static_cast<std::uint32_t>(load_le32(p)); }
/// The bytes of the payload behind a frame of `words` words; more than there can be: the layout is another one.
inline std::uint32_t payload_bytes(const std::byte* frame, std::uint32_t words) noexcept {
  const std::uint32_t list = load32(frame + pointer + 4), bytes = list >> 3;
  return load32(frame + pointer) == 1 && (list & 7) == 2 && words == payload_prefix::fixed_words + (bytes + 7) / 8
             ? bytes
             : 0xffffffff;
}

/// The description in pieces, if datagrams are shorter than it.
struct description_pieces {
  std::uint64_t sender = 0;
  std::uint32_t number = 0, have = 0;
  bool answers = false;
  std::array<std::byte, description_bytes> frame;
};
struct no_pieces {};
}  // namespace detail::embedded

/// Pulls one image from an owner behind a datagram link with one peer: a serial line (embedded_line), a radio. It has
/// no clock, no random numbers and no link: they are handed in. Chunks have at most `ChunkBytes`, a multiple of 8; a
/// datagram of the owner has then at most 80 bytes more (and 152 if those are more than 128: a description has so many,
/// and in shorter datagrams it arrives in pieces). A datagram of this end has 80 bytes.
///
/// The header of the image is compared before the first byte of data lands, unless the owner states our fingerprint. A
/// byte lands only if it is in the answer to the one request on its way: reference, version, nonce, offset, length and
/// id are compared. Frames that are doubled, late or of another transfer are ignored. The landing's content is
/// `completed` only after the digest of the whole was compared.
template <class Landing, std::size_t ChunkBytes, class Hash = typename detail::embedded::hash_for<Landing>::type>
class embedded_recipient {
  static_assert(
      embedded_landing<Landing>,
      "tensorpull: an embedded recipient lands in a landing, such as model_landing<Model>: it names its image, and has result<void> write(at, bytes) and "
      "result<void> read(at, out), both noexcept (embedded_landing in embedded/landing.hpp)");
  static_assert(ChunkBytes > 0 && ChunkBytes % 8 == 0 && ChunkBytes <= 0x10000,
                "tensorpull: chunks of an embedded recipient have a multiple of 8 bytes, at most 64 KiB");
  using image = typename Landing::image;

 public:
  /// Bytes of the longest answer that it asks for: a chunk behind 80 bytes. A longer description arrives in pieces.
  static constexpr std::size_t answer_bytes = detail::embedded::frame_bytes + ChunkBytes;
  /// The longest datagram that comes from an owner whose link carries no longer ones than needed, and that goes out.
  static constexpr std::size_t max_in = answer_bytes < 128 ? 128 : answer_bytes;
  /// Bytes of every datagram that goes out.
  static constexpr std::size_t max_out = detail::embedded::frame_bytes;

  /// Borrows the landing. `random`: a number that no earlier recipient on this link has had.
  embedded_recipient(Landing& to, const embedded_pull& what, std::uint64_t random) noexcept
      : landing_(to), ref_(what.ref), who_(what.recipient ? what.recipient.value : random | 1), version_(what.version),
        timeout_(what.timeout_ms), retry_(what.retry_ms), id_(static_cast<std::uint32_t>(random >> 32)),
        given_(what.version != 0), unverified_(what.unverified) {}

  /// Writes the frame to send now, and returns its length: 80 bytes, or 0 if there is nothing to send now or `out` is
  /// shorter. Call it after each received(), and again within the time in which a lost datagram should be noticed; with
  /// an empty `out` as long as the link takes nothing, so that this ends in time, too.
  std::size_t next(std::span<std::byte> out, std::uint32_t now_ms) noexcept {
    now_ = now_ms;
    const bool room = out.size() >= detail::embedded::frame_bytes;
    if constexpr (takes_pieces)
      if (room && pieces_.answers) return answer_pieces(out.data());
    if (state_ == state::start) {
      moved();
      ask(state::describing);
    }
    if (state_ < state::leaving && has_come(deadline_)) fail(late_);
    if (state_ == state::over || !has_come(due_)) return 0;
    if (!room) {  // the time goes on: a link that takes nothing ends a pull, too, and no farewell is waited for
      if (state_ == state::leaving && has_come(due_ + retry_)) state_ = state::over;
      return 0;
    }
    due_ = now_ + retry_;
    open_ = true;
    using detail::embedded::field_of_request;
    std::uint64_t fields[detail::embedded::fields] = {};
    frame_kind kind = frame_kind::pull;
    std::uint32_t flag = 0;
    std::uint64_t version = version_;
    if (state_ == state::describing) {
      kind = frame_kind::describe;
      version = who_;
    } else if (state_ < state::confirming) {
      fields[field_of_request<frame_kind::pull, &frame::offset>] = wanted_at();
      fields[field_of_request<frame_kind::pull, &frame::length>] = wanted_bytes();
    } else if (state_ == state::confirming) {
      kind = frame_kind::confirm;
      flag = verifiable_;
      fields[field_of_request<frame_kind::confirm, &frame::nonce>] = nonce_;
      fields[field_of_request<frame_kind::confirm, &frame::digest>] = hash_.digest();
      fields[field_of_request<frame_kind::confirm, &frame::recipient>] = who_;
    } else {
      kind = frame_kind::cancel;
      const auto why = static_cast<std::uint16_t>(why_ == errc::digest_mismatch ? status::digest_mismatch : status::ok);
      fields[field_of_request<frame_kind::cancel, &frame::nonce>] = nonce_;
      fields[field_of_request<frame_kind::cancel, &frame::recipient>] = who_;
      fields[field_of_request<frame_kind::cancel, &frame::reason>] = reason_ | std::uint64_t{why} << 32;
      if (--farewells_ == 0) state_ = state::over;
    }
    std::byte* const to = out.data();
    constexpr unsigned flag_bit = detail::place_of<frame_kind::confirm, &frame::flag>.bit - 32u;
    detail::embedded::begin_frame(to, id_, static_cast<std::uint32_t>(kind) | flag << flag_bit);
    store_le64(to + detail::embedded::own_words, ref_.high);
    store_le64(to + detail::embedded::own_words + 8, ref_.low);
    store_le64(to + detail::embedded::own_words + 16, version);
    for (std::size_t i = 0; i < detail::embedded::fields; ++i)
      store_le64(to + detail::embedded::first_field + 8 * i, fields[i]);
    return detail::embedded::frame_bytes;
  }

  /// A datagram has arrived; it may hold several frames. Anything that does not answer the pending request is ignored.
  void received(std::span<const std::byte> datagram, std::uint32_t now_ms) noexcept {
    now_ = now_ms;
    const std::byte* p = datagram.data();
    for (std::size_t left = datagram.size() / 8; left > 0;) {  // in words
      const std::uint32_t words = left > 1 ? detail::embedded::load32(p + 4) : 0;
      if (words >= left || words < detail::payload_prefix::fixed_words || load_le32(p) != 0 ||
          load_le64(p + 8) != detail::payload_prefix::root_pointer)
        return void(late_ = errc::unsupported_layout);  // the only name for why no answer was understood, if none is
      take(p, words);
      p += 8 * (words + 1);
      left -= words + 1;
    }
  }

  /// Ends the transfer as `cancelled`, if it has not ended; the owner is told, with a number of the application's.
  void cancel(std::uint32_t reason = 0) noexcept {
    if (state_ >= state::leaving) return;
    reason_ = reason;
    fail(errc::cancelled);
  }

  /// Whether it is over, and the owner has been told if it has to be. Before that next() has frames to send.
  bool ended() const noexcept { return state_ == state::over; }
  /// How it ended; ended() must be true. Of schema_mismatch `at` is the index, in image order, of the first tensor that
  /// differs (the number of tensors: the other model has all of ours and more); of every other error, how many bytes of
  /// the image had landed. A model whose header has metadata that ours has not differs in tensor 0.
  result<receipt> outcome() const noexcept {
    if (!finished_) return unexpected{error{why_, static_cast<std::int32_t>(system_), at_, {}}};
    receipt r;
    if (verifiable_) r.outcome = tensorpull::outcome::completed;
    r.bytes = total_;
    r.chunks = chunks_;
    r.version = version_;
    r.fingerprint = image::fingerprint;
    r.digest = hash_.digest();
    r.confirmed = confirmed_;
    r.unconfirmed_because = why_;
    r.believed = !verifiable_ || !given_;
    return r;
  }
  /// Bytes of the image that are here, its header included.
  std::uint32_t landed_bytes() const noexcept { return landed_; }
  /// Bytes of the image; 0 before the description.
  std::uint32_t total_bytes() const noexcept { return total_; }

 private:
  /// Datagrams of such a link may be shorter than a description.
  static constexpr bool takes_pieces = answer_bytes < detail::embedded::description_bytes;
  static constexpr bool lasts = lasting_landing<Landing>;

  enum class state : std::uint8_t {
    start,
    describing,
    pulling,
    closing,  // everything is here, but this serve has not reached its end: the last byte is sent again, for nothing
    confirming,
    leaving,  // it has failed, and the owner has to hear of it
    over,
  };

  bool has_come(std::uint32_t time) const noexcept { return static_cast<std::int32_t>(now_ - time) >= 0; }
  void moved() noexcept {
    deadline_ = now_ + timeout_;
    late_ = errc::timed_out;
  }
  /// The next request: with an id of its own, so that a late answer to the one before is ignored.
  void ask(state s) noexcept {
    state_ = s;
    ++id_;
    open_ = false;
    due_ = now_;
  }
  [[gnu::noinline]] void fail(errc why, std::uint32_t at) noexcept {
    why_ = why;
    at_ = at;
    farewells_ = 3;
    const bool tells = nonce_ != 0 && !finished_ && why != errc::withdrawn && why != errc::unreadable &&
                       why != errc::stale_version;
    ask(tells ? state::leaving : state::over);
  }
  void fail(errc why) noexcept { fail(why, landed_); }
  void differs(std::uint32_t tensor) noexcept { fail(errc::schema_mismatch, tensor); }

  std::uint32_t wanted_at() const noexcept { return state_ == state::closing ? total_ - 1 : landed_; }
  /// A chunk ends where the header ends, so that one is of the data section or is not.
  std::uint32_t wanted_bytes() const noexcept {
    if (state_ == state::closing) return 1;
    const std::uint32_t rest = (landed_ < start_ ? start_ : total_) - landed_;
    const std::uint32_t n = rest < cap_ ? rest : cap_;
    if constexpr (requires { Landing::cursor_step; })
      if (const std::uint32_t over = (landed_ - start_ + n) % Landing::cursor_step; landed_ >= start_ && over < n)
        return n - over;
    return n;
  }

  /// One frame of our layout.
  void take(const std::byte* p, std::uint32_t words) noexcept {
    const frame_kind kind = detail::kind_in(p);
    if constexpr (takes_pieces)
      if (kind == frame_kind::piece) return take_piece(p, words);
    if (!open_ || detail::id_in(p) != id_ || state_ >= state::leaving) return;
    const std::byte* body = p + detail::embedded::own_words;
    if (kind == frame_kind::description) {
      if (words != detail::embedded::description_bytes / 8 - 1 ||
          load_le64(p + detail::embedded::pointer) != std::uint64_t{9} << 32)
        return void(late_ = errc::unsupported_layout);
      body = p + detail::embedded::frame_bytes;
    }
    if (load_le64(body) != ref_.high || load_le64(body + 8) != ref_.low) return;
    const std::uint64_t version = load_le64(body + 16);
    if (kind == frame_kind::refused) return take_refusal(p);
    if (kind == frame_kind::description && state_ == state::describing) return take_description(p, version);
    if (version != version_) return;
    if (kind == frame_kind::chunk && (state_ == state::pulling || state_ == state::closing))
      return take_chunk(p, words);
    if (kind == frame_kind::confirmed && state_ == state::confirming &&
        field<frame_kind::confirmed, &frame::nonce>(p) == nonce_) {
      const status s = detail::to_status(field<frame_kind::confirmed, &frame::status>(p));
      confirmed_ = s == status::ok;
      if (!confirmed_) why_ = to_errc(s);
      state_ = state::over;
    }
  }

  template <frame_kind Kind, auto Member>
  [[gnu::always_inline]] static std::uint64_t field(const std::byte* p) noexcept {
    return detail::field_in<Kind, Member>(p);
  }

  void take_description(const std::byte* p, std::uint64_t version) noexcept {
    constexpr auto what = frame_kind::description;
    const std::uint64_t bytes = field<what, &frame::image_bytes>(p), start = field<what, &frame::data_start>(p);
    const auto cap = static_cast<std::uint32_t>(field<what, &frame::length>(p));
    if (version == 0 || cap == 0 || start < 8 || start > bytes) return fail(errc::bad_frame);
    if (version_ != 0 && version != version_) return fail(errc::stale_version);
    if (bytes > 0x7fffffff) return fail(errc::too_large);
    const bool again = total_ != 0;
    // the same version means the same bytes; an owner that claims otherwise must not move what has landed
    if (again && (bytes != total_ || start != start_)) return fail(errc::bad_frame);
    nonce_ = field<what, &frame::nonce>(p);
    cap_ = cap < ChunkBytes ? cap : static_cast<std::uint32_t>(ChunkBytes);
    if (!again) {
      version_ = version;
      total_ = static_cast<std::uint32_t>(bytes);
      start_ = static_cast<std::uint32_t>(start);
      compares_ = field<what, &frame::fingerprint>(p) != image::fingerprint;
      verifiable_ = field<what, &frame::flag>(p) != 0;
      if (!compares_) {
        if (total_ - start_ != image::data_bytes) return differs(image::tensor_count);
        if constexpr (requires { Hash::least_bytes; })
          if (total_ < Hash::least_bytes)
            return fail(errc::bad_frame);  // a header that is shorter than that of the same tensors
        if (!verifiable_ && !unverified_) return fail(errc::not_verifiable);
        if constexpr (lasts)
          if (start_ == image::header_bytes) finished_ = resume(version) && adopt();
      }
      moved();
    }
    ask(finished_ ? state::closing : state::pulling);
  }

  void take_chunk(const std::byte* p, std::uint32_t words) noexcept {
    const std::uint32_t n = detail::embedded::payload_bytes(p, words);
    if (field<frame_kind::chunk, &frame::offset>(p) != wanted_at() || n != wanted_bytes()) return;
    if (field<frame_kind::chunk, &frame::nonce>(p) != nonce_)
      return ask(state::describing);  // another serve: the owner was started again
    if (state_ == state::closing) {
      moved();
      return ask(state::confirming);
    }
    const std::byte* const payload = p + detail::embedded::frame_bytes;
    if (landed_ < start_) {
      if (compares_) {
        for (std::uint32_t i = 0; i < n; ++i)
          if (const std::uint32_t at = landed_ + i;
              at >= image::header_bytes || (at >= 8 && payload[i] != image::header[at]))
            return differs(image::tensor_of_header(at));
        if (landed_ + n == start_) return differs(image::tensor_count);
      }
    } else if (const auto ok = landing_.write(landed_ - start_, {payload, n}); !ok) {
      system_ = static_cast<std::uint32_t>(ok.error().system);
      return fail(ok.error().code);
    }
    hash_.update({payload, n});
    landed_ += n;
    ++chunks_;
    moved();
    if constexpr (lasts)
      if (start_ == image::header_bytes && !compares_ && !save())
        return;  // of another header (it has metadata) no cursor can be proved
    if (landed_ < total_) return ask(state::pulling);
    if (verifiable_ && hash_.digest() != version_) return fail(errc::digest_mismatch);
    finished_ = true;
    ask(state::confirming);
  }

  void take_refusal(const std::byte* p) noexcept {
    const status s = detail::to_status(field<frame_kind::refused, &frame::status>(p));
    const auto number = static_cast<std::uint32_t>(field<frame_kind::refused, &frame::delay_ms>(p));
    if (s == status::busy) {  // no progress: a busy owner may put us off until the deadline
      const std::uint32_t wait = number != 0 ? number : 1;
      if (wait >= deadline_ - now_) return fail(errc::busy);
      ask(state_ == state::confirming ? state::confirming : state::describing);
      due_ += wait;
      return;
    }
    if (s == status::already_final && state_ == state::describing) {
      if constexpr (lasts)
        if (!finished_ && total_ == 0) finished_ = resume(0);
      if (finished_) {
        confirmed_ = true;
        state_ = state::over;
        return;
      }
    }
    // It does not know this serve: it was started again, or has forgotten us.
    if (s == status::bad_request && state_ == state::confirming && !served_again_) {
      served_again_ = true;
      return ask(state::describing);
    }
    if (s == status::withdrawn) system_ = number;
    fail(to_errc(s), s == status::schema_mismatch ? image::tensor_count : landed_);
  }

  /// The image was there under another reference: its cursor tells from now on what was pulled last.
  [[gnu::noinline]] bool adopt() noexcept { return landing_.cursor().ref == ref_ || save(); }
  bool save() noexcept {
    const auto ok = landing_.save({ref_, image::fingerprint, version_, landed_, hash_.digest()});
    if (!ok) fail(ok.error().code);
    return ok.has_value();
  }
  /// Goes on where an earlier program stopped, if its cursor's hash is that of the bytes that are there. True: all of
  /// it is here, and right. `version`: what is published; 0: what is here, if that is what was asked for, all of it is,
  /// and its digest proves it.
  bool resume(std::uint64_t version) noexcept {
    const resume_cursor c = landing_.cursor();
    const bool fits = (c.ref == ref_ || (version | version_) != 0) && c.fingerprint == image::fingerprint &&
                      c.offset != 0 && c.offset <= image::image_bytes;
    if (!fits) return false;
    const bool whole = c.offset == image::image_bytes;
    if (version != 0 && c.version != version) return false;
    if (version == 0 && (!whole || (version_ != 0 && c.version != version_))) return false;
    const std::uint32_t offset = static_cast<std::uint32_t>(c.offset),
                        header = offset < image::header_bytes ? offset : image::header_bytes, end = offset - header;
    hash_.update(std::span(image::header).first(header));
    std::byte some[64];
    bool good = true;
    for (std::uint32_t at = 0; at < end && good;) {
      const std::uint32_t n = end - at < sizeof some ? end - at : static_cast<std::uint32_t>(sizeof some);
      good = landing_.read(at, {some, n}).has_value();
      hash_.update({some, n});
      at += n;
    }
    const std::uint64_t sum = hash_.digest();
    if (!good || sum != c.digest || (whole && (verifiable_ || version == 0) && sum != c.version)) {
      hash_ = Hash{};
      return false;
    }
    landed_ = offset;
    if (version == 0) {
      version_ = c.version;
      total_ = landed_;
      verifiable_ = true;
    }
    return whole;
  }

  void take_piece(const std::byte* p, std::uint32_t words) noexcept {
    using detail::piece;
    constexpr auto what = frame_kind::piece;
    const std::uint32_t n = detail::embedded::payload_bytes(p, words);
    const auto number = static_cast<std::uint32_t>(field<what, &piece::number>(p)),
               at = static_cast<std::uint32_t>(field<what, &piece::offset>(p));
    const std::uint64_t sender = field<what, &piece::sender>(p), total = field<what, &piece::total>(p);
    auto& in = pieces_;
    if (total != in.frame.size() || n == 0 || n % 8 != 0 || n > in.frame.size() || at > in.frame.size() - n ||
        sender == 0)
      return;
    if (at == 0 && (sender != in.sender || static_cast<std::int32_t>(number - in.number) > 0)) {
      in.sender = sender;
      in.number = number;
      in.have = 0;
    }
    if (sender != in.sender) return;
    in.answers = true;
    if (number != in.number || at != in.have) return;
    std::memcpy(in.frame.data() + at, p + detail::embedded::frame_bytes, n);
    in.have += n;
    if (in.have < in.frame.size()) return;
    in.have = 0;
    ++in.number;
    if (detail::kind_in(in.frame.data()) != what) received(in.frame, now_);
  }
  std::size_t answer_pieces(std::byte* out) noexcept {
    pieces_.answers = false;
    detail::embedded::begin_frame(out, 0, static_cast<std::uint32_t>(frame_kind::taken));
    store_le64(out + detail::byte_of<frame_kind::taken, &detail::piece::sender>, pieces_.sender);
    store_le64(out + detail::byte_of<frame_kind::taken, &detail::piece::number>,
               pieces_.number | std::uint64_t{pieces_.have} << 32);
    return detail::embedded::frame_bytes;
  }

  Landing& landing_;
  Hash hash_{};
  ref_id ref_;
  std::uint64_t who_, version_, nonce_ = 0;
  std::uint32_t timeout_, retry_;
  std::uint32_t now_ = 0, deadline_ = 0, due_ = 0;  // milliseconds
  std::uint32_t id_;  // of the request on its way
  // bytes: that are here, where the data section begins, of the image, of a chunk at most
  std::uint32_t landed_ = 0, start_ = 0, total_ = 0, cap_ = 0, chunks_ = 0;
  std::uint32_t at_ = 0, system_ = 0, reason_ = 0;
  state state_ = state::start;
  errc why_{}, late_ = errc::timed_out;
  std::uint8_t farewells_ = 0;
  bool open_ = false;  // the request was sent, and not answered
  bool given_;  // the version was, and not taken from the owner
  bool unverified_, verifiable_ = false, compares_ = false, finished_ = false, confirmed_ = false,
                    served_again_ = false;
  [[no_unique_address]] std::conditional_t<takes_pieces, detail::embedded::description_pieces,
                                           detail::embedded::no_pieces> pieces_;
};

}  // namespace tensorpull
