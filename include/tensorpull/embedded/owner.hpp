// The owner of one model on a small machine: a whole owner in a few kilobytes, without heap, clock, operating system or
// lists of unknown length. Unmodified hosts pull from it over a link of datagrams, such as `serial`: it sends the same
// frames as protocol/owner, one request at a time.
//
// Anything that it leaves out, it refuses by name: schema pages and named tensors are `unsupported`. One recipient at a
// time is served, and the publication ends with the first that completes, as a transaction of one recipient does
// (protocol/reference.md).
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/crc32c.hpp>
#include <tensorpull/core/ids.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/embedded/detail/owner_answers.hpp>
#include <tensorpull/embedded/image.hpp>
#include <tensorpull/framing/detail/control_words.hpp>
#include <tensorpull/framing/detail/payload_prefix.hpp>
#include <tensorpull/framing/frame.hpp>
#include <tensorpull/integrity/concept.hpp>
#include <tensorpull/integrity/policies.hpp>
#include <tensorpull/protocol/owner/detail/late_requests.hpp>
#include <tensorpull/protocol/owner/transaction.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace tensorpull {

/// Publishes one model at a time to one recipient at a time, over a link of datagrams with one request on its way.
///
/// `Model`: a struct, as raw_tensors takes it, or a model that is computed while it is read.
/// `ChunkBytes`: the longest payload that it sends. `Hash`: XXH3-64, for the version. `ChunkHash`: the hash that
/// recipients may ask for with each chunk, which a server that averages needs: xxh3_64 or basic_crc32c<crc32c_small>,
/// which has the line's table; no_hash: such requests are `unsupported`. `DatagramBytes`: the longest answer. Below the
/// 152 bytes of a description that travels in pieces; otherwise no code for pieces is compiled.
///
/// One thread at a time; no heap, no clock: `now_ms` counts milliseconds from any moment, and may wrap.
template <class Model, std::size_t ChunkBytes, hash Hash = detail::embedded::default_hash<embedded_image<Model>>,
          hash ChunkHash = detail::no_hash, std::size_t DatagramBytes = detail::embedded_answer_bytes(ChunkBytes)>
class embedded_owner {
  using image = embedded_image<Model>;
  using prefix = detail::payload_prefix;
  /// Nonces name serves; they are odd, since 0 is none. They tell serves apart; they do not authenticate.
  static constexpr std::uint64_t nonce_step = 0x9e3779b97f4a7c16;
  static constexpr bool in_pieces = DatagramBytes < detail::short_frame_bytes;
  /// Its header is no constant, and reading it may fail.
  static constexpr bool is_computed = requires { &image::read_header; };
  static constexpr std::uint32_t image_bytes = image::image_bytes, header_bytes = image::header_bytes;
  static_assert(digest_kind_of<Hash> == digest_kind::xxh3_64,
                "tensorpull: a version is XXH3-64 of the image, so an owner needs that hash");
  static_assert(detail::least_bytes_of<Hash>() <= image_bytes,
                "tensorpull: the image is too short for this hash: use xxh3_64");
  static_assert(detail::least_bytes_of<ChunkHash>() == 0,
                "tensorpull: a chunk may be too short for this hash: use xxh3_64 or basic_crc32c");
  static_assert(ChunkBytes > 0 && prefix::frame_bytes(ChunkBytes) <= DatagramBytes,
                "tensorpull: a chunk has to fit a datagram, behind 80 bytes and rounded up to 8");
  static_assert(DatagramBytes >= 104,
                "tensorpull: a datagram has at least 104 bytes: 128, less what a link puts in front");

 public:
  /// Bytes that `out` of answer() has to have.
  static constexpr std::size_t answer_bytes = DatagramBytes;
  /// Bytes of every request that it answers with more than a refusal.
  static constexpr std::size_t request_bytes = prefix::bytes;

  /// `idle_ms`: a recipient of which nothing was heard for so long gives way to another one.
  explicit embedded_owner(std::uint32_t idle_ms = 10'000) noexcept : idle_ms_(idle_ms) {}

  /// Publishes a model under `ref`, which is not all zero, and forgets what was published before and its recipients.
  /// The model is borrowed, and must not change until the state() is completed or completed_unverified, or until
  /// withdraw(), busy() or the next publish(). If it does change, recipients get bytes of both, and none of them ends
  /// as completed, since the digest is not that of the version. `random`: a number that cannot be guessed. Cost: one
  /// pass over the model. One that cannot be read, now or later, ends the publication: recipients hear `unreadable`.
  void publish(const typename image::model_type& model, ref_id ref, std::uint64_t random) noexcept {
    Hash h;
    std::byte part[64];
    bool readable = true;
    if constexpr (is_computed) {
      for (std::uint32_t at = 0, n = 0; at < header_bytes; at += n) {
        n = header_bytes - at < sizeof part ? header_bytes - at : static_cast<std::uint32_t>(sizeof part);
        image::read_header(model, at, std::span(part, n));
        h.update(std::span<const std::byte>(part, n));
      }
    } else {
      h.update(std::span<const std::byte>(image::header));
    }
    for (std::uint32_t at = 0; at < image_bytes - header_bytes;) {
      const std::uint32_t left = image_bytes - header_bytes - at,
                          n = left < sizeof part ? left : static_cast<std::uint32_t>(sizeof part);
      if constexpr (is_computed) readable = image::read(model, at, std::span(part, n)) && readable;
      else image::read(model, at, std::span(part, n));
      h.update(std::span<const std::byte>(part, n));
      at += n;
    }
    model_ = &model;
    ref_ = ref;
    version_ = h.digest();
    nonce_ = random | 1;
    who_ = {};
    served_ = 0;
    now_ = readable ? status::ok : status::unreadable;
    number_ = reason_ = 0;
    state_ = recipient_state::unseen;
    if constexpr (in_pieces) pieces_.give_up();
  }
  /// The model is in the making: until it is published everybody is asked to return after `delay_ms`. The earlier model
  /// is not read any more; a recipient that has completed it still hears so.
  void busy(std::uint32_t delay_ms) noexcept { end(status::busy, delay_ms); }
  /// Ends the publication: the model is not read any more. Recipients are told `withdrawn` with `reason`, a number of
  /// the application's.
  void withdraw(std::uint32_t reason = 0) noexcept { end(status::withdrawn, reason); }

  /// How far the one recipient is: unseen, acquired, provisional (it was sent the last byte), completed,
  /// completed_unverified (it computed no digest), failed (it has other bytes), cancelled, or unfinished (it was under
  /// way when the publication ended). One that failed or cancelled may return, or another may ask, as long as the model
  /// is published. completed and completed_unverified are final: the model may be changed.
  recipient_state state() const noexcept { return state_; }
  /// Whether the model can be pulled now; false: it has been taken, was withdrawn, or is in the making.
  bool is_published() const noexcept { return now_ == status::ok; }
  /// Bytes of payload that were sent since publish(), to any recipient.
  std::uint64_t bytes_served() const noexcept { return served_; }
  /// The number that the recipient gave as it cancelled; 0: none.
  std::uint32_t reason() const noexcept { return state_ == recipient_state::cancelled ? reason_ : 0; }
  /// The recipient that pulls, by its own number; none: nobody yet, or it gave none.
  recipient_id recipient() const noexcept { return who_; }
  /// The reference for recipients, to be handed out: the ID, the version and the fingerprint.
  tensorpull::reference reference() const noexcept { return {ref_, version_, image::fingerprint}; }

  /// Answers the requests in one datagram, which may hold other frames, too. Gives the bytes of the answering datagram
  /// in `out`; 0: there is none. There is at most one for each datagram that arrives, and only for requests in it that
  /// are valid and in the layout of our encoders. `out`: at least answer_bytes, apart from `datagram`. A request whose
  /// answer does not fit is not answered, and will be asked for again.
  std::size_t answer(std::span<const std::byte> datagram, std::span<std::byte> out, std::uint32_t now_ms) noexcept {
    const std::byte* p = datagram.data();
    std::size_t left = datagram.size(), used = 0;
    while (left >= prefix::bytes) {
      const std::uint64_t size = 8 + 8 * (load_le64(p) >> 32);
      if (load_le32(p) != 0 || size > left) break;  // no end of this protocol sends such a request
      const auto n = static_cast<std::size_t>(size);
      if (n >= prefix::bytes) used += answer_one(p, n, out.data() + used, out.size() - used, now_ms);
      p += n;
      left -= n;
    }
    return used;
  }

 private:
  using kind = frame_kind;
  static constexpr std::size_t short_bytes = prefix::bytes;  // of an answer that is neither a chunk nor a description
  static constexpr std::size_t pointer_at = short_bytes - 8;
  /// The pointers to the words of a request for names, which lie right behind.
  static constexpr std::uint64_t names_pointer = std::uint64_t{detail::body_size(kind::locate).data} << 32 |
                                                 std::uint64_t{detail::body_size(kind::locate).pointers} << 48;
  static constexpr std::size_t names_bytes = short_bytes + 8u * (detail::body_size(kind::locate).data +
                                                                 detail::body_size(kind::locate).pointers);

  /// A request, and where its answer goes.
  struct request {
    const std::byte* frame;
    const std::byte* own;  // its reference, and what follows
    std::byte* out;
    std::size_t room;
    std::uint64_t version;  // that it asks for; 0: any
    kind what;

    template <kind Kind, auto Member>
    std::uint64_t get() const noexcept {
      return detail::field_in<Kind, Member>(frame);
    }
    std::uint32_t id() const noexcept { return detail::id_in(frame); }
    bool is_about(const ref_id& ref) const noexcept {
      return load_le64(own) == ref.high && load_le64(own + 8) == ref.low;
    }
  };

  std::size_t answer_one(const std::byte* p, std::size_t size, std::byte* out, std::size_t room,
                         std::uint32_t now_ms) noexcept {
    if (load_le64(p + 8) != prefix::root_pointer || room < short_bytes) return 0;
    if constexpr (in_pieces)
      if (detail::piece_prefix::announced({p, size})) {
        const auto piece = detail::piece_prefix::read(std::span<const std::byte, prefix::bytes>(p, prefix::bytes));
        return piece && pieces_.taken(*piece, detail::short_frame_bytes) ? write_piece(out, room) : 0;
      }
    request q{p, p + 24, out, room, 0, detail::kind_in(p)};
    if (!is_request(q.what)) return 0;
    // Of the names that are asked for nothing is read: the request is refused.
    const bool names = q.what == kind::locate;
    if (load_le64(p + pointer_at) != (names ? names_pointer : 0) || (names ? size < names_bytes : size != short_bytes))
      return 0;
    if (names) q.own = p + short_bytes;
    if (q.what != kind::describe) q.version = load_le64(q.own + 16);
    if (late_.is_late(q.what, q.id())) return 0;
    if (q.what == kind::confirm || q.what == kind::cancel) return settle(q, now_ms);
    if (const std::size_t n = refuse_unpublished(q); n > 0) return n;
    if (q.version != 0 && q.version != version_) return refuse(q, status::stale, version_);
    if (q.what == kind::describe) return greet(q, now_ms);
    heard_ms_ = now_ms;
    if (q.what != kind::pull) return refuse(q, status::unsupported, version_);
    if (!is_under_way()) state_ = recipient_state::acquired;
    return send_bytes(q);
  }

  /// Writes the words of every answer but a description: reference, version, and what the kind has besides.
  [[gnu::noinline]] static std::size_t say(const request& q, kind what, std::uint64_t version, std::uint64_t first,
                                           std::uint64_t second, std::uint64_t third = 0) noexcept {
    begin_frame(q.out, short_bytes, q.id(), what);
    std::memcpy(q.out + 24, q.own, 16);
    store_le64(q.out + 40, version);
    store_le64(q.out + 48, first);
    store_le64(q.out + 56, second);
    store_le64(q.out + 64, third);
    store_le64(q.out + 72, 0);
    return short_bytes;
  }
  static void begin_frame(std::byte* out, std::size_t bytes, std::uint32_t id, kind what) noexcept {
    store_le64(out, std::uint64_t{bytes / 8 - 1} << 32);
    store_le64(out + 8, prefix::root_pointer);
    store_le64(out + 16, id | std::uint64_t{static_cast<std::uint16_t>(what)} << 32);
  }
  /// `number`: a delay or a reason.
  static std::size_t refuse(const request& q, status why, std::uint64_t version, std::uint32_t number = 0) noexcept {
    const bool has_offset = q.what == kind::pull || q.what == kind::schema;
    static_assert(detail::byte_of<kind::pull, &frame::offset> == detail::byte_of<kind::schema, &frame::offset>);
    return say(q, kind::refused, version, has_offset ? q.template get<kind::pull, &frame::offset>() : 0,
               static_cast<std::uint16_t>(why) | std::uint64_t{number} << 32);
  }
  /// The answer if the request is about something else than what is published; 0: it is about that.
  std::size_t refuse_unpublished(const request& q) const noexcept {
    if (now_ == status::busy) return refuse(q, now_, q.version, number_);
    if (!ref_ || !q.is_about(ref_)) return refuse(q, status::unknown_reference, q.version);
    if (now_ == status::ok) return 0;
    const bool finished = q.what == kind::describe && who_ &&
                          q.template get<kind::describe, &frame::recipient>() == who_.value && has_completed();
    return finished ? refuse(q, status::already_final, q.version) : refuse(q, now_, q.version, number_);
  }
  bool is_under_way() const noexcept {
    return state_ == recipient_state::acquired || state_ == recipient_state::provisional;
  }
  bool has_completed() const noexcept {
    return state_ == recipient_state::completed || state_ == recipient_state::completed_unverified;
  }

  /// Answers a request for the description. A recipient that returns goes on with the serve that was begun.
  std::size_t greet(const request& q, std::uint32_t now_ms) noexcept {
    const recipient_id who{q.template get<kind::describe, &frame::recipient>()};
    const std::uint32_t silent = now_ms - heard_ms_;
    const bool other = who != who_;
    if (other && who_ && is_under_way() && silent < idle_ms_)
      return refuse(q, status::busy, version_, idle_ms_ - silent);
    late_.has_changed(q.id());
    heard_ms_ = now_ms;
    if (other && state_ != recipient_state::unseen) nonce_ += nonce_step;
    if (other || !is_under_way()) state_ = recipient_state::acquired;
    who_ = who;
    if constexpr (in_pieces) {
      pieces_.ask(q.id(), nonce_);
      return write_piece(q.out, q.room);
    } else {
      if (q.room < detail::short_frame_bytes) return 0;
      describe(q.out, q.id());
      return detail::short_frame_bytes;
    }
  }
  /// Writes what is published.
  void describe(std::byte* out, std::uint32_t id) const noexcept {
    constexpr auto what = kind::description;
    std::memset(out, 0, detail::short_frame_bytes);
    begin_frame(out, detail::short_frame_bytes, id, what);
    store_le64(out + pointer_at, std::uint64_t{detail::body_size(what).data} << 32);
    store_le64(out + detail::byte_of<what, &frame::ref>, ref_.high);
    store_le64(out + detail::byte_of<what, &frame::ref> + 8, ref_.low);
    store_le64(out + detail::byte_of<what, &frame::version>, version_);
    store_le64(out + detail::byte_of<what, &frame::fingerprint>, image::fingerprint);
    store_le64(out + detail::byte_of<what, &frame::image_bytes>, image_bytes);
    store_le64(out + detail::byte_of<what, &frame::data_start>, header_bytes);
    store_le64(out + detail::byte_of<what, &frame::nonce>, nonce_);
    static_assert(detail::byte_of<what, &frame::tensors> == detail::byte_of<what, &frame::length> + 4 &&
                  detail::byte_of<what, &frame::flag> == detail::byte_of<what, &frame::window> + 2);
    store_le64(out + detail::byte_of<what, &frame::length>, ChunkBytes | std::uint64_t{image::tensor_count} << 32);
    store_le64(out + detail::byte_of<what, &frame::window>, 1u | 1u << 16);  // one request at a time; verifiable
  }

  /// Answers a pull. 0: there is no room for all of the chunk.
  std::size_t send_bytes(const request& q) noexcept {
    constexpr auto what = kind::pull;
    const std::uint64_t fingerprint = q.template get<what, &frame::fingerprint>(),
                        offset = q.template get<what, &frame::offset>();
    auto length = static_cast<std::uint32_t>(q.template get<what, &frame::length>());
    const auto wanted = static_cast<digest_kind>(q.template get<what, &frame::chunk_digest>());
    if (fingerprint != 0 && fingerprint != image::fingerprint) return refuse(q, status::schema_mismatch, version_);
    if (offset > image_bytes) return refuse(q, status::out_of_range, version_);
    const auto at = static_cast<std::uint32_t>(offset);
    if (at == image_bytes) return say(q, kind::end, version_, image_bytes, nonce_);
    if (length == 0) return refuse(q, status::bad_request, version_);
    if (wanted != digest_kind::none && wanted != digest_kind_of<ChunkHash>)
      return refuse(q, status::unsupported, version_);
    if (length > image_bytes - at) length = image_bytes - at;
    if (length > ChunkBytes) length = static_cast<std::uint32_t>(ChunkBytes);
    const std::uint32_t padded = (length + 7) & ~std::uint32_t{7};
    if (prefix::bytes + padded > q.room) return 0;
    const std::span<std::byte> payload{q.out + prefix::bytes, length};
    store_le64(payload.data() + padded - 8, 0);  // the padding, and bytes that are written over
    std::uint32_t of_header = 0;
    if (at < header_bytes) {
      of_header = header_bytes - at < length ? header_bytes - at : length;
      if constexpr (is_computed) image::read_header(*model_, at, payload.first(of_header));
      else std::memcpy(payload.data(), image::header.data() + at, of_header);
    }
    if constexpr (is_computed) {
      if (of_header < length && !image::read(*model_, at + of_header - header_bytes, payload.subspan(of_header))) {
        end(status::unreadable, 0);
        return refuse(q, status::unreadable, version_);
      }
    } else if (of_header < length) {
      image::read(*model_, at + of_header - header_bytes, payload.subspan(of_header));
    }
    std::uint64_t of_chunk = 0;
    if constexpr (digest_kind_of<ChunkHash> != digest_kind::none)
      if (wanted != digest_kind::none) {
        ChunkHash h;
        h.update(std::span<const std::byte>(payload));
        of_chunk = h.digest();
      }
    say(q, kind::chunk, version_, at, nonce_, of_chunk);
    store_le64(q.out, std::uint64_t{prefix::fixed_words + padded / 8} << 32);
    store_le64(q.out + pointer_at, 1u | std::uint64_t{2} << 32 | std::uint64_t{length} << 35);
    served_ += length;
    if (at + length == image_bytes) state_ = recipient_state::provisional;
    return prefix::bytes + padded;
  }

  /// A confirmation counts once, for the serve whose nonce it repeats, after that serve reached the end. A repeated one
  /// gets the same answer. Anything else changes nothing.
  std::size_t settle(const request& q, std::uint32_t now_ms) noexcept {
    const bool confirms = q.what == kind::confirm;
    static_assert(detail::byte_of<kind::confirm, &frame::nonce> == detail::byte_of<kind::cancel, &frame::nonce>);
    const std::uint64_t nonce = q.template get<kind::confirm, &frame::nonce>(),
                        sum = q.template get<kind::confirm, &frame::digest>();
    const std::uint64_t who = confirms ? q.template get<kind::confirm, &frame::recipient>()
                                       : q.template get<kind::cancel, &frame::recipient>();
    const bool known = ref_ && q.is_about(ref_) && nonce == nonce_ && (who == 0 || who == who_.value);
    if (!known || state_ == recipient_state::unseen || state_ == recipient_state::unfinished) {
      if (!confirms) return 0;
      const std::size_t n = refuse_unpublished(q);
      return n > 0 ? n : refuse(q, status::bad_request, q.version);
    }
    late_.has_changed(q.id());
    heard_ms_ = now_ms;
    if (!confirms) {
      if (!is_under_way()) return 0;
      const auto why = static_cast<status>(q.template get<kind::cancel, &frame::status>());
      state_ = why == status::digest_mismatch ? recipient_state::failed : recipient_state::cancelled;
      reason_ = static_cast<std::uint32_t>(q.template get<kind::cancel, &frame::reason>());
      return 0;
    }
    if (q.version != version_) return refuse(q, status::stale, version_);
    if (state_ == recipient_state::acquired) return refuse(q, status::bad_request, version_);
    const bool verified = q.template get<kind::confirm, &frame::flag>() != 0, equal = sum == version_;
    if (state_ == recipient_state::provisional) {
      state_ = equal ? recipient_state::completed : recipient_state::failed;
      if (!verified) state_ = recipient_state::completed_unverified;
      if (has_completed()) end(status::ended, 0);
    }
    status taken = status::ok;
    if (state_ == recipient_state::failed || (state_ == recipient_state::completed && verified && !equal))
      taken = status::digest_mismatch;
    if (state_ == recipient_state::cancelled) taken = status::already_final;
    return say(q, kind::confirmed, version_, nonce_, static_cast<std::uint16_t>(taken));
  }

  void end(status now, std::uint32_t number) noexcept {
    if (is_under_way()) state_ = recipient_state::unfinished;
    model_ = nullptr;
    now_ = now;
    number_ = number;
    if constexpr (in_pieces) pieces_.give_up();
  }
  std::size_t write_piece(std::byte* out, std::size_t room) noexcept {
    if (room < DatagramBytes) return 0;
    std::byte whole[detail::short_frame_bytes];
    describe(whole, pieces_.id());
    return pieces_.write(whole, out, DatagramBytes);
  }

  const typename image::model_type* model_ = nullptr;  // what is read as long as now_ is ok
  ref_id ref_{};
  std::uint64_t version_ = 0, nonce_ = 0, served_ = 0;
  recipient_id who_{};
  std::uint32_t idle_ms_, heard_ms_ = 0;
  std::uint32_t number_ = 0, reason_ = 0;  // the number of this serve; the recipient's reason as it cancelled
  status now_ = status::withdrawn;  // what recipients are told: ok, busy, withdrawn or ended
  recipient_state state_ = recipient_state::unseen;
  detail::late_requests late_{};
  [[no_unique_address]] std::conditional_t<in_pieces, detail::described_in_pieces, detail::described_at_once> pieces_{};
};

}  // namespace tensorpull
