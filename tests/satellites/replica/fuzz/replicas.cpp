// What a hostile recipient and a hostile coordinator say to a replica, frame by frame, while everything moves in pieces
// of any size.
#include "fuzz/sides.hpp"

#include <tensorpull/satellites/replica/replica_line.hpp>

#include <algorithm>
#include <set>

namespace test::fuzz {
namespace {

using owner_type = tp::owner<tp::xxhash_digest, tp::default_limits>;
constexpr std::uint32_t sign_id = 0xffffffff;

/// The settings of this target.
struct replica_plan {
  bool honest;  ///< the coordinator is an owner of ours; what the input says for one is left out
  bool rest_is_answer;  ///< bytes that are no frame come from the coordinator, not from the recipient
  bool signs;  ///< the replica shows signs of life as often as it can
  bool unreachable;  ///< there is no coordinator, and the replica knows it
  bool late;  ///< the coordinator is there when half of the input has come
  bool withdraws;  ///< what the replica publishes is withdrawn when half of the input has come
  bool hangs_up;  ///< the recipient ends its side behind its last byte
  bool dies;  ///< the coordinator ends its side behind its last byte

  explicit replica_plan(unsigned s) noexcept
      : honest((s & 1) != 0), rest_is_answer((s & 2) != 0), signs((s & 4) != 0), unreachable((s & 8) != 0),
        late((s & 16) != 0), withdraws((s & 32) != 0), hangs_up((s & 64) != 0), dies((s & 128) != 0) {}
};

/// One end of the line under test: an input in pieces, or an owner of ours behind a pipe. Keeps what was read.
struct line_end {
  piecewise* pieces = nullptr;
  pipe_end* pipe = nullptr;
  byte_vector* heard = nullptr;
  const bool* ended = nullptr;
  byte_vector* spoken = nullptr;

  tp::io_result read_some(std::span<const byte_span> spans) noexcept {
    const tp::io_result io = pieces != nullptr ? pieces->read_some(spans) : pipe->read_some(spans);
    std::size_t left = io.bytes;
    for (const auto& s : spans) {
      const std::size_t n = std::min(left, s.size());
      heard->insert(heard->end(), s.begin(), s.begin() + static_cast<std::ptrdiff_t>(n));
      left -= n;
    }
    if (io.bytes == 0 && *ended) return {tp::io_status::closed, 0, 0};
    return io;
  }
  tp::io_result write_some(std::span<const const_byte_span> spans) noexcept {
    if (pieces != nullptr) return pieces->write_some(spans);
    for (const auto& s : spans) spoken->insert(spoken->end(), s.begin(), s.end());  // a pipe takes everything
    return pipe->write_some(spans);
  }
  tp::io_ready wait(bool read, bool write, std::chrono::milliseconds) noexcept { return {read, write}; }
  int native_handle() const noexcept { return -1; }
};
static_assert(tp::pollable_stream<line_end>);

/// One frame, or what is left when there is none.
struct said {
  const_byte_span bytes;
  bool by_recipient;
};
std::vector<said> sorted(input stream, const replica_plan& plan) {
  std::vector<said> all;
  while (!stream.empty()) {
    const auto size = tp::detail::measure_frame(stream, ~std::size_t{0}, 16);
    if (!size || !*size || **size > stream.size()) {
      all.push_back({stream, !plan.rest_is_answer});
      break;
    }
    const auto one = stream.first(**size);
    const frame copy(one);
    tp::word_framing::short_storage lists;
    tp::frame m;
    const bool is_frame = tp::word_framing::decode(copy.bytes(), m, lists).has_value();
    all.push_back({one, is_frame ? tp::is_request(m.kind) || m.kind == tp::frame_kind::application
                                 : !tp::detail::payload_prefix::announces_payload(one) && !plan.rest_is_answer});
    stream = stream.subspan(**size);
  }
  return all;
}

/// The whole frames of a stream, as far as there are some, and where each begins.
std::vector<std::size_t> begins_of(const_byte_span stream) {
  std::vector<std::size_t> at{0};
  while (at.back() < stream.size()) {
    const auto size = tp::detail::measure_frame(stream.subspan(at.back()), ~std::size_t{0}, 16);
    if (!size || !*size || **size > stream.size() - at.back()) break;
    at.push_back(at.back() + **size);
  }
  return at;
}
bool decoded_as(const_byte_span bytes, tp::frame& m) {
  const frame copy(bytes);
  tp::word_framing::short_storage lists;
  return tp::word_framing::decode(copy.bytes(), m, lists).has_value();
}

/// The replica, one line of it, and both of its ends.
class scene {
 public:
  using line_type = tp::replica_line<tp::word_framing, tp::default_limits, owner_type, line_end>;

  scene(small_model& a, small_model& b, const settings& s, input stream)
      : plan_(s.scenario), items_(sorted(stream, plan_)), first_(a), second_(b), coordinator_(a, b) {
    for (const said& i : items_) {
      auto& to = i.by_recipient ? to_replica_ : answers_;
      to.insert(to.end(), i.bytes.begin(), i.bytes.end());
    }
    recipient_.emplace(s, to_replica_), answering_.emplace(s, answers_);
    recipient_->allowed = answering_->allowed = 0;
    require(own_.publish(a.source(), a.version(), true, first_ref, 0).has_value() &&
                own_.publish(b.source(), unverified_version, false, second_ref, 0).has_value(),
            "there is room for two");
    options_.sign_of_life = plan_.signs ? 1ms : std::chrono::milliseconds(1h);
    line_.emplace(line_end{&*recipient_, nullptr, &heard_, &recipient_ended_}, own_, counts_, now_);
    line_->lost(plan_.unreachable);
  }

  unsigned play() {
    for (std::size_t i = 0; i < items_.size() && !dead_; ++i) {
      if (i == items_.size() / 2) {
        here_ = true;
        if (plan_.withdraws) require(own_.withdraw(first_ref).has_value(), "nothing is pinned between two steps");
      }
      (items_[i].by_recipient ? recipient_ : answering_)->allowed += items_[i].bytes.size();
      rest();
    }
    here_ = true;
    if (!dead_) rest();
    if (!dead_ && reached_ && !plan_.honest)
      require(answering_->consumed() == answers_.size(), "what the coordinator says is read to the end");
    if (!dead_ && plan_.dies) coordinator_ended_ = true, rest();
    if (!dead_ && plan_.hangs_up) recipient_ended_ = true, rest();
    require(!plan_.hangs_up || dead_ || !plan_.dies, "without both of its ends a line ends");
    const unsigned got = check_answers();
    check_requests();
    line_.reset();
    for (const tp::publication& p : storage_.view().slots)
      require(p.pins == 0, "nothing is pinned when no line is there");
    require(counts_.own_bytes <= recipient_->out.size(), "what is counted as sent was sent");
    return got;
  }

 private:
  void rest() {
    (void)line_->expired(options_.budgets, now_, false);  // as its driver asks now and then
    for (int quiet = 0, steps = 0; quiet < 3; ++steps) {
      require(steps < 200'000, "a line comes to rest");
      now_ += 1ms;
      const auto wants = line_->step(scratch_, now_, options_);
      for (const tp::publication& p : storage_.view().slots) require(p.pins == 0, "a pin lasts no longer than a write");
      reached_ = reached_ || line_->reached();
      if (wants == line_type::need::end) return void(dead_ = true);
      bool moved = wants == line_type::need::again;
      if (wants == line_type::need::coordinator && !plan_.unreachable && (here_ || !plan_.late)) {
        line_->call(plan_.honest ? line_end{nullptr, &near_, &answers_heard_, &coordinator_ended_, &asked_}
                                 : line_end{&*answering_, nullptr, &answers_heard_, &coordinator_ended_},
                    now_);
        moved = true;
      }
      if (plan_.honest && !coordinator_failed_) {
        const auto did = tp::pump_once(coordinator_.end.end, idle_, far_, scratch_of_coordinator());
        if (!did) coordinator_failed_ = coordinator_ended_ = moved = true;
        else moved = moved || did->received + did->sent > 0;
      }
      quiet = moved ? 0 : quiet + 1;
    }
  }
  byte_span scratch_of_coordinator() { return {reinterpret_cast<std::byte*>(coordinator_.end.scratch.get()), 65536}; }

  /// Everything that the recipient was sent is what the coordinator said, in its order, and between that whole chunks
  /// of the replica's own copy, with a nonce of the coordinator's, and without the last byte of the image. Counts the
  /// frames.
  unsigned check_answers() const {
    const const_byte_span out = recipient_->out, theirs = answers_heard_;
    const auto marks = begins_of(theirs);
    // how much of the coordinator's words the recipient has; an own chunk may look like one of theirs
    std::set<std::size_t> places{0};
    unsigned frames = 0;
    for (std::size_t at = 0; at < out.size();) {
      const auto rest = out.subspan(at);
      const auto size = tp::detail::measure_frame(rest, ~std::size_t{0}, 16);
      const bool known = size && *size;
      const std::size_t n = known ? std::min(**size, rest.size()) : rest.size();
      std::set<std::size_t> next;
      for (std::size_t place : places)
        for (;;) {
          if (theirs.size() - place >= n && std::memcmp(theirs.data() + place, rest.data(), n) == 0)
            next.insert(place + n);
          if (is_own(rest.first(n), known ? **size : 0, theirs.first(place))) next.insert(place);
          // the answer to a sign of life is the replica's
          tp::frame m;
          const auto mark = std::find(marks.begin(), marks.end(), place);
          if (mark == marks.end() || mark + 1 == marks.end()) break;
          const auto one = theirs.subspan(place, *(mark + 1) - place);
          const bool chunk = tp::detail::payload_prefix::announces_payload(one) &&
                             one.size() >= tp::detail::payload_prefix::bytes;
          if (!plan_.signs || !(chunk ? tp::detail::payload_prefix::read(one.first<tp::detail::payload_prefix::bytes>())
                                                .value_or(tp::frame{})
                                                .id == sign_id
                                      : decoded_as(one, m) && m.id == sign_id))
            break;
          place = *(mark + 1);
        }
      require(!next.empty(), "a recipient is sent what the coordinator said, or chunks of the replica's own");
      places = std::move(next);
      at += n;
      ++frames;
    }
    return frames;
  }
  bool is_own(const_byte_span bytes, std::size_t whole, const_byte_span before) const {
    using prefix = tp::detail::payload_prefix;
    if (whole == 0) return bytes.size() < 8;  // cut off by the end of the line, before it says how long it is
    if (bytes.size() < 24) return bytes.size() < whole;
    if (!prefix::announces_payload(bytes)) {
      tp::frame m;
      return plan_.unreachable && bytes.size() == whole && decoded_as(bytes, m) && m.kind == tp::frame_kind::refused &&
             m.status == tp::status::owner_lost;
    }
    if (bytes.size() < prefix::bytes) return true;
    const auto m = prefix::read(bytes.first<prefix::bytes>());
    if (!m) return false;
    const small_model* of = nullptr;
    if (m->ref == first_ref && m->version == first_.version()) of = &first_;
    if (m->ref == second_ref && m->version == unverified_version) of = &second_;
    if (of == nullptr) return false;
    // the models are the same for each input
    static const byte_vector images[2]{first_.image_bytes(), second_.image_bytes()};
    const byte_vector& image = images[of == &first_ ? 0 : 1];
    if (m->length == 0 || m->offset >= image.size() || m->length > image.size() - m->offset) return false;
    const auto expected = const_byte_span(image).subspan(static_cast<std::size_t>(m->offset), m->length);
    if (m->digest != 0 && m->digest != digest_of(expected)) return false;
    for (std::size_t i = prefix::bytes; i < bytes.size(); ++i)
      if (bytes[i] != (i - prefix::bytes < m->length ? expected[i - prefix::bytes] : std::byte{0})) return false;
    return was_described(*m, before);
  }
  /// Whether the coordinator has said before that this is the version, and this the nonce.
  bool was_described(const tp::frame& chunk, const_byte_span before) const {
    const auto marks = begins_of(before);
    bool version = false, nonce = false;
    for (std::size_t i = 0; i + 1 < marks.size(); ++i) {
      tp::frame m;
      if (!decoded_as(before.subspan(marks[i], marks[i + 1] - marks[i]), m) || m.ref != chunk.ref) continue;
      if (m.kind == tp::frame_kind::description) version = version || m.version == chunk.version;
      if (m.kind == tp::frame_kind::description || m.kind == tp::frame_kind::located)
        nonce = nonce || m.nonce == chunk.nonce;
    }
    return version && nonce;
  }

  /// The coordinator was sent requests of the recipient, in their order, and signs of life.
  void check_requests() const {
    const const_byte_span out = plan_.honest ? asked_ : answering_->out;
    const auto marks = begins_of(heard_);
    std::size_t next = 0;
    for (std::size_t at = 0; at < out.size();) {
      const auto rest = out.subspan(at);
      const auto size = tp::detail::measure_frame(rest, ~std::size_t{0}, 16);
      require(size && (rest.size() < 8 || *size), "a coordinator is sent frames");
      const std::size_t n = *size ? std::min(**size, rest.size()) : rest.size();
      tp::frame m;
      const bool sign = plan_.signs && n == **size && decoded_as(rest.first(n), m) && m.id == sign_id &&
                        m.kind == tp::frame_kind::pull && m.offset == 0 && m.length <= 4096;
      std::size_t found = next;
      while (found + 1 < marks.size() &&
             !(marks[found + 1] - marks[found] >= n && std::memcmp(heard_.data() + marks[found], rest.data(), n) == 0))
        ++found;
      require(sign || found + 1 < marks.size() || n < 24, "a coordinator is sent what the recipient has asked");
      if (!sign) next = found + 1;
      at += n;
    }
  }

  replica_plan plan_;
  std::vector<said> items_;
  small_model &first_, &second_;
  owning_side coordinator_;
  tp::no_transfer idle_;
  wire up_, down_;
  pipe_end near_{down_, up_, {}, {}}, far_{up_, down_, {}, {}};
  byte_vector to_replica_, answers_, heard_, answers_heard_, asked_;
  std::optional<piecewise> recipient_, answering_;
  tp::owner_storage<4, 16> storage_;
  owner_type own_{storage_, [n = std::uint64_t{100}]() mutable { return ++n; }};
  tp::replica_counts counts_;
  tp::replica_options options_;
  byte_span scratch_ = [] {
    static byte_vector memory(65536);
    return std::span(memory);
  }();
  tp::replica_line<tp::word_framing, tp::default_limits, owner_type, line_end>::time_point now_{};
  bool recipient_ended_ = false, coordinator_ended_ = false, coordinator_failed_ = false, here_ = false, dead_ = false,
       reached_ = false;
  std::optional<line_type> line_;
};

}  // namespace

static unsigned replicas(input in) {
  static small_model a, b(4);
  unsigned got = 0;
  {
    scene s(a, b, settings::of(in), stream_of(in));
    got = s.play();
  }
  require(a.guards_intact() && b.guards_intact(), "a replica writes nothing around its tensors");
  return got;
}
static const registered replicas_target{{"replicas", replicas, true, settings::bytes}};

}  // namespace test::fuzz
