// One recipient of a replica: its connection, and the connection to the coordinator that belongs to it. Frames pass
// between the two as they are, but requests for chunks are answered from the replica's own copy.
#pragma once

#include <tensorpull/framing/concept.hpp>
#include <tensorpull/framing/detail/payload_prefix.hpp>
#include <tensorpull/framing/detail/segment_table.hpp>
#include <tensorpull/links/posix/pollable_stream.hpp>
#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/protocol/detail/reply_writer.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/satellites/replica/detail/described_references.hpp>
#include <tensorpull/satellites/replica/detail/kept_descriptor.hpp>
#include <tensorpull/satellites/replica/replica_options.hpp>
#include <tensorpull/transports/host_budget.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

namespace tensorpull {

/// `Stream`: of both connections. `Owner`: the state machine with the replica's own copies. About 21 KiB; nothing is
/// allocated after it was made.
///
/// The coordinator's description has its version, its nonce and the length of its chunks. From then on a request for a
/// chunk of that version is answered from the own copy, with the same nonce. The exception is the last byte that the
/// recipient wants: that request passes on, so the coordinator knows that the recipient was served to the end before it
/// confirms. Answers keep the order of the requests: an own answer begins when everything that was passed on is
/// answered.
template <framing Framing, class Limits, class Owner, pollable_stream Stream>
class replica_line {
 public:
  using time_point = std::chrono::steady_clock::time_point;  ///< points in time

  /// The next step of the driver.
  enum class need : std::uint8_t {
    nothing,  ///< wait for its descriptors
    again,  ///< take the next step at once, but let others go first
    coordinator,  ///< a connection to the coordinator, by call(), or lost(true)
    time,  ///< step again in a few hundredths of a second
    end,  ///< destroy it
  };

  /// Takes over an accepted connection, and the descriptor that is kept for the connection to the coordinator. Owner
  /// and counts are borrowed.
  replica_line(Stream recipient, Owner& owner, replica_counts& counts, time_point now,
               detail::kept_descriptor kept = {}) noexcept
      : owner_(owner), counts_(counts), down_(std::move(recipient)), kept_(std::move(kept)), watch_(now), signed_(now) {
  }
  replica_line(const replica_line&) = delete;
  replica_line& operator=(const replica_line&) = delete;
  ~replica_line() { owner_.forget(peer_); }

  /// The kept descriptor is free: begin a connection to the coordinator now, and report by call() or hang_up(). False:
  /// none was kept.
  bool may_call() noexcept { return kept_.let_go(); }
  /// Takes over a connection to the coordinator that was begun.
  void call(Stream coordinator, time_point now) noexcept {
    up_.emplace(std::move(coordinator));
    called_ = now;
  }
  /// The connection to the coordinator failed before it was there; another may be tried.
  void hang_up() noexcept {
    up_.reset();
    (void)kept_.keep();
  }
  /// Whether a connection to the coordinator is being made, and since when.
  bool calling() const noexcept { return up_ && !reached_; }
  time_point called() const noexcept { return called_; }  ///< since when
  /// The connection to the coordinator. Requires that there is one.
  Stream& coordinator() noexcept { return *up_; }
  /// The need after the last step.
  need wants = need::again;
  /// Whether the coordinator was reached.
  bool reached() const noexcept { return reached_; }
  /// Whether requests are refused as owner_lost, unless the coordinator was reached.
  void lost(bool is) noexcept { lost_ = is; }

  /// Moves bytes in a bounded number of rounds. `scratch`: for prefixes and packed elements, shared by all lines of a
  /// thread.
  need step(std::span<std::byte> scratch, time_point now, const replica_options& options) noexcept {
    if (!down_established_ && !establish_down()) return dead_ ? need::end : need::nothing;
    wants_ = need::nothing;
    for (int round = 0; round < rounds; ++round) {
      moved_ = false;
      if (calling()) establish_up();
      hear_recipient();
      take_requests(now);
      if (reached_) speak_to_coordinator();
      if (own_) send_own(scratch);
      else pass_answers();
      sign(now, options);
      if (dead_) return need::end;
      if (!moved_) return over() ? need::end : wants_;
    }
    return need::again;
  }
  /// Whether a budget is spent. Call it several times a second. `away`: the coordinator cannot be reached. The time of
  /// a recipient that waits for it begins when the coordinator is there; until then the patience with the coordinator
  /// counts.
  bool expired(const connection_budgets& budgets, time_point now, bool away) noexcept {
    asked_ = 0;
    if (waits_for_coordinator() && (away || calling())) {
      watch_ = detail::budget_watch(now);
      return false;
    }
    return watch_.over(budgets, now, activity());
  }
  /// Whether it has to make room for others.
  bool makes_room(detail::room_maker& room, time_point now) const noexcept {
    return room.ends(watch_, now, activity());
  }

  /// The recipient's descriptor, to wait for.
  int recipient_handle() const noexcept { return down_.native_handle(); }
  /// The coordinator's descriptor; -1: there is none.
  int coordinator_handle() const noexcept { return up_ ? up_->native_handle() : -1; }
  /// Directions to wait for on the recipient's connection.
  io_ready recipient_interest() const noexcept {
    if (!down_established_) return down_waits_;
    return interest(down_,
                    {!down_ended_ && have_ < requests_.size(), !down_broken_ && (own_ ? !digesting_ : passing_ > 0)});
  }
  /// Directions to wait for on the coordinator's connection.
  io_ready coordinator_interest() const noexcept {
    if (!up_) return {};
    if (!reached_) return up_waits_;
    return interest(
        *up_, {!up_ended_ && !own_ && answers_end_ < answers_.size(), !up_ended_ && (up_left_ > 0 || sign_left_ > 0)});
  }

 private:
  using prefix = detail::payload_prefix;
  static constexpr int rounds = 8;
  /// Requests of a recipient that has shown nothing that are passed on between two calls of expired(): each is work for
  /// two processes.
  static constexpr std::uint32_t most_unproven = 8;
  static constexpr std::size_t answers_bytes = std::max<std::size_t>(16 * 1024, 2 * Limits::control_frame_bytes);
  static constexpr std::uint64_t digest_bytes = 256 * 1024;
  static constexpr std::uint32_t sign_id = 0xffffffff;
  static constexpr std::uint64_t sign_payload = 4096;

  using described = detail::described_reference;
  template <class F>
  struct storage_of {
    using type = typename F::decode_storage;
  };
  template <class F>
    requires requires { typename F::short_storage; }
  struct storage_of<F> {
    using type = typename F::short_storage;
  };
  using storage = typename storage_of<Framing>::type;

  static io_ready interest(const Stream& s, io_ready wanted) noexcept {
    if constexpr (requires { s.interest(wanted); }) return wanted.read || wanted.write ? s.interest(wanted) : wanted;
    else return wanted;
  }
  static establishment establish(Stream& s) noexcept {
    if constexpr (requires { s.establish(); }) return s.establish();
    else return {};
  }
  bool establish_down() noexcept {
    const establishment now = establish(down_);
    down_waits_ = now.waits_for;
    dead_ = is_end(now.status);
    return down_established_ = now.status == io_status::ok;
  }
  void establish_up() noexcept {
    const establishment now = establish(*up_);
    up_waits_ = now.waits_for;
    if (now.status == io_status::ok) reached_ = moved_ = true;
    else if (is_end(now.status)) up_.reset();
  }
  bool waits_for_coordinator() const noexcept { return whole_request_ && !reached_ && !lost_; }
  detail::connection_activity activity() const noexcept {
    const bool owing = have_ > 0 || own_ || unanswered_ > 0 || passing_ > 0 || up_left_ > 0;
    // those that have not had their first answer cannot be judged
    return {bytes_, heard_, 0, unanswered_ > 0 && !refused_, owing, false};
  }
  void broke() noexcept {
    ++counts_.broken;
    dead_ = true;
  }
  /// The recipient has hung up, and the coordinator has heard and answered all that it sent.
  bool over() const noexcept { return down_ended_ && !own_ && up_left_ == 0 && unanswered_ == 0 && passing_ == 0; }

  void hear_recipient() noexcept {
    if (down_ended_ || have_ == requests_.size()) return;
    const io_result io = read(down_, std::span(requests_).subspan(have_));
    have_ += io.bytes;
    if (is_end(io.status)) down_ended_ = moved_ = true;
  }
  io_result count(const io_result& io) noexcept {
    bytes_ += io.bytes;
    if (io.bytes > 0) moved_ = true;
    return io;
  }
  io_result read(Stream& s, std::span<std::byte> room) noexcept { return count(s.read_some({&room, 1})); }
  io_result write(Stream& s, std::span<const std::byte> bytes) noexcept { return count(s.write_some({&bytes, 1})); }

  /// Looks at the recipient's next requests: begins an own answer, or begins to pass one on.
  void take_requests(time_point now) noexcept {
    whole_request_ = false;
    while (up_left_ == 0 && !dead_) {
      const auto bytes = std::span<const std::byte>(requests_).first(have_);
      const auto size = detail::measure_frame(bytes, requests_.size(), Limits::control_frame_segments);
      if (!size) return broke();
      if (!*size || **size > have_) return;
      whole_request_ = true;
      storage lists;
      frame m;
      const auto ok = Framing::decode(bytes.first(**size), m, lists);
      // a replica has no use for messages and answers of a recipient
      if (!is_newer(m.kind) && (!ok || !is_request(m.kind))) return broke();
      switch (lost_ && !reached_ ? without_coordinator(m) : fate_of(m, now)) {
        case fate::waits: return;
        case fate::passed_on: return pass_on(m, **size);
        case fate::done: drop_request(**size);
      }
    }
  }
  /// The fate of a request.
  enum class fate : std::uint8_t {
    waits,  ///< earlier answers are first
    passed_on,  ///< the coordinator answers
    done,  ///< answered, or nobody takes an answer
  };
  fate without_coordinator(const frame& m) noexcept { return refuse(m) ? fate::done : fate::waits; }
  fate fate_of(const frame& m, time_point now) noexcept {
    return m.kind == frame_kind::pull ? own_request(m, now) : fate::passed_on;
  }
  void pass_on(const frame& m, std::size_t bytes) noexcept {
    if (!reached_) {
      wants_ = up_ ? need::nothing : need::coordinator;
      return;
    }
    if (heard_ == 0 && asked_++ >= most_unproven) return;
    up_left_ = bytes;
    up_size_ = bytes;
    if (m.kind != frame_kind::cancel) ++unanswered_;
    ++counts_.passed_on;
  }
  void drop_request(std::size_t n) noexcept {
    have_ -= n;
    std::memmove(requests_.data(), requests_.data() + n, have_);
    whole_request_ = false;
    moved_ = true;
  }
  /// Tells the recipient that nobody coordinates any more. False: there is no room now.
  bool refuse(const frame& m) noexcept {
    if (m.kind == frame_kind::cancel) return true;
    if (own_ || answers_.size() - answers_end_ < Limits::control_frame_bytes) return false;
    frame no;
    no.kind = frame_kind::refused;
    no.status = status::owner_lost;
    no.id = m.id;
    no.ref = m.ref;
    no.version = m.version;
    const auto n = Framing::encode(no, std::span(answers_).subspan(answers_end_));
    if (!n) {
      broke();
      return false;
    }
    answers_end_ += *n;
    passing_ += *n;
    return true;
  }

  /// Answers a request for a chunk from the own copy, if it has that chunk.
  fate own_request(const frame& m, time_point now) noexcept {
    if (down_ended_) return fate::done;
    described* const d = described_.find(m.ref);
    if (d == nullptr) return unanswered_ == 0 ? fate::passed_on : fate::waits;  // sent ahead of the description
    const std::uint64_t length = std::min(m.length, d->cap);
    if (!d->gives(m, length)) return fate::passed_on;
    // what the recipient was told last may change this
    if (unanswered_ > 0 || own_ || passing_ > 0 || here() > 0) return fate::waits;
    return begin_own(*d, m, length, now) ? fate::done : fate::passed_on;
  }
  /// Begins to send the chunk. False: the own copy does not have it after all.
  bool begin_own(described& d, const frame& m, std::uint64_t length, time_point now) noexcept {
    frame mine = m;
    mine.version = d.version;
    mine.length = static_cast<std::uint32_t>(length);
    pending_reply r;
    if (!owner_.handle(peer_, mine, r) || r.kind != frame_kind::chunk || r.length != length) {
      d.own = false;
      return false;
    }
    r.nonce = d.nonce;
    own_ = r;
    own_nonce_ = d.nonce;
    own_sent_ = 0;
    last_own_ = {d.ref, d.version};
    if (!served_own_) signed_ = now;
    served_own_ = true;
    ++heard_;
    ++counts_.own;
    return true;
  }

  void speak_to_coordinator() noexcept {
    if (sign_left_ > 0) {
      const io_result io = write(*up_, std::span(sign_).subspan(sign_bytes_ - sign_left_, sign_left_));
      sign_left_ -= io.bytes;
      if (is_end(io.status)) up_ended_ = true;
      if (sign_left_ > 0) return;
    }
    if (up_left_ == 0 || up_ended_) return;
    const io_result io = write(*up_, std::span(requests_).subspan(up_size_ - up_left_, up_left_));
    up_left_ -= io.bytes;
    if (up_left_ == 0) drop_request(up_size_);
    if (is_end(io.status)) up_ended_ = true;  // its earlier bytes may still be read
  }

  /// Writes what it can of the own chunk.
  void send_own(std::span<std::byte> scratch) noexcept {
    pending_reply& r = *own_;
    digesting_ = false;
    if (r.chunk_digest != digest_kind::none) {
      std::uint64_t allowance = digest_bytes;
      const digest_state now = owner_.digest(r, allowance, scratch);
      digesting_ = now != digest_state::ready;
      if (digesting_) return void(wants_ = now == digest_state::working ? need::again : need::time);
    }
    frame m = frame_of(r);
    m.nonce = own_nonce_;
    std::array<std::span<const std::byte>, 32> out;
    detail::chunk_part part;
    const detail::image_use use = detail::use_image(owner_, r, [&](const source_view& image) noexcept {
      part = detail::write_chunk(m, image, own_sent_, piece_bytes, out, scratch);
      return !part.failed;
    });
    if (use != detail::image_use::pinned) return broke_off();
    const io_result io = count(down_.write_some({out.data(), part.spans}));
    const std::size_t before = detail::payload_within(own_sent_, r.length);
    own_sent_ += io.bytes;
    const std::size_t payload = detail::payload_within(own_sent_, r.length) - before;
    owner_.unpin(r, payload);
    counts_.own_bytes += payload;
    if (own_sent_ == prefix::frame_bytes(r.length)) own_.reset();
    if (is_end(io.status)) {
      own_.reset();
      down_ended_ = down_broken_ = true;
    }
  }
  /// The own copy is gone or unreadable. A recipient that has seen the beginning of the chunk dials again; otherwise
  /// the coordinator answers. The line ends in either case, since the request is gone.
  void broke_off() noexcept {
    own_.reset();
    dead_ = true;
  }

  /// Bytes of answers that have arrived and were not passed on.
  std::size_t here() const noexcept { return answers_end_ - answers_begin_; }
  /// Reads answers of the coordinator and hands them on.
  void pass_answers() noexcept {
    if (answers_end_ == answers_.size())
      drop_answers(0);  // the rest of an answer that is not whole needs the room before it
    if (reached_ && !up_ended_ && answers_end_ < answers_.size()) {
      const io_result io = read(*up_, std::span(answers_).subspan(answers_end_));
      answers_end_ += io.bytes;
      if (is_end(io.status)) up_ended_ = true;
    }
    look_at_answers();
    if (const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(passing_, here())); n > 0 && !dead_) {
      const io_result io = down_broken_ ? count({io_status::ok, 0, n})
                                        : write(down_, std::span(answers_).subspan(answers_begin_, n));
      if (is_end(io.status)) down_ended_ = down_broken_ = moved_ = true;
      drop_answers(io.bytes);
      passing_ -= io.bytes;
    }
    // The coordinator is gone. The recipient has its answers, and dials again if it wants more.
    if (up_ended_ && (passing_ == 0 || here() == 0)) dead_ = true;
  }
  /// Moves what is left by whole words, since frames are decoded where they lie.
  void drop_answers(std::size_t n) noexcept {
    answers_begin_ += n;
    const std::size_t words = answers_begin_ / 8 * 8;
    if (words == 0 || (here() > 0 && answers_end_ < answers_.size())) return;
    std::memmove(answers_.data(), answers_.data() + words, answers_end_ - words);
    answers_begin_ -= words;
    answers_end_ -= words;
  }
  /// Finds how many of the bytes that arrived are whole answers or begin a chunk, and reads them.
  void look_at_answers() noexcept {
    while (!dead_ && passing_ < here()) {
      if (swallow_left_ > 0) {
        if (passing_ > 0) return;
        const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(swallow_left_, here()));
        drop_answers(n);
        swallow_left_ -= n;
        continue;
      }
      const auto have = std::span<const std::byte>(answers_)
                            .subspan(answers_begin_, here())
                            .subspan(static_cast<std::size_t>(passing_));
      if (have.size() >= 24 && prefix::announces_payload(have)) {
        if (have.size() < prefix::bytes) return;
        const auto m = prefix::read(have.template first<prefix::bytes>());
        if (!m) return broke();
        if (!answer(*m, prefix::frame_bytes(m->length))) return;
        continue;
      }
      // A frame of less than 24 bytes cannot be told from the head of a chunk, and no answer is so short.
      if (have.size() < 24) return;
      const auto size = detail::measure_frame(have, Limits::control_frame_bytes, Limits::control_frame_segments);
      if (!size) return broke();
      if (!*size || **size > have.size()) return;
      storage lists;
      frame m;
      if (const auto ok = Framing::decode(have.first(**size), m, lists); !ok) return broke();
      if (is_request(m.kind) || m.kind == frame_kind::application) return broke();
      described_.learn(m);
      if (!answer(m, **size)) return;
    }
  }
  /// An answer of so many bytes begins. False: it waits, or the line is broken.
  bool answer(const frame& m, std::uint64_t bytes) noexcept {
    if (signing_ && m.id == sign_id) {
      signing_ = false;
      swallow_left_ = bytes;
      return true;
    }
    if (unanswered_ == 0) {
      broke();
      return false;
    }
    --unanswered_;
    if (m.kind != frame_kind::refused) ++heard_;
    else refused_ = true;
    passing_ += bytes;
    return true;
  }

  /// Shows the coordinator that the recipient takes chunks, by taking a few bytes from it and dropping them.
  void sign(time_point now, const replica_options& options) noexcept {
    if (!served_own_ || !reached_ || up_ended_ || signing_ || unanswered_ > 0 || up_left_ > 0 ||
        !detail::has_passed(now - signed_, options.sign_of_life))
      return;
    served_own_ = false;
    signed_ = now;
    const described* const d = described_.find(last_own_.ref);
    if (d == nullptr || !d->own || d->last < 2) return;
    frame m;
    m.kind = frame_kind::pull;
    m.id = sign_id;
    m.ref = last_own_.ref;
    m.version = last_own_.version;
    // not to the end, which would say that the recipient has everything
    m.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(sign_payload, d->last - 1));
    const auto n = Framing::encode(m, sign_);
    if (!n) return;
    sign_bytes_ = sign_left_ = *n;
    signing_ = moved_ = true;
  }

  static constexpr std::uint64_t piece_bytes = 256 * 1024;
  struct served {
    ref_id ref{};
    std::uint64_t version = 0;
  };

  Owner& owner_;
  replica_counts& counts_;
  Stream down_;
  std::optional<Stream> up_;
  detail::kept_descriptor kept_;  // for up_, as long as there is none
  typename Owner::peer peer_{};
  std::optional<pending_reply> own_;  // the chunk that is being sent
  detail::described_references<Limits::transfers_per_connection> described_;
  alignas(8) std::array<std::byte, Limits::control_frame_bytes> requests_;
  alignas(8) std::array<std::byte, answers_bytes> answers_;
  alignas(8) std::array<std::byte, 128> sign_;
  detail::budget_watch watch_;
  time_point called_{}, signed_;
  served last_own_{};
  std::uint64_t bytes_ = 0, own_nonce_ = 0;
  // bytes from answers_begin_ on that may be passed on; a chunk's are counted before they arrive
  std::uint64_t passing_ = 0;
  std::uint64_t swallow_left_ = 0;  // bytes of an answer that is the replica's own
  std::size_t have_ = 0, answers_begin_ = 0, answers_end_ = 0, own_sent_ = 0, up_left_ = 0, up_size_ = 0,
              sign_left_ = 0, sign_bytes_ = 0;
  std::uint32_t unanswered_ = 0, heard_ = 0, asked_ = 0;
  io_ready down_waits_{}, up_waits_{};
  need wants_ = need::nothing;
  bool down_established_ = false, down_ended_ = false, down_broken_ = false, reached_ = false, up_ended_ = false;
  bool digesting_ = false, signing_ = false, served_own_ = false, whole_request_ = false, moved_ = false, lost_ = false,
       refused_ = false, dead_ = false;
};

}  // namespace tensorpull
