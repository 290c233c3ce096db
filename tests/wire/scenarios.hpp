// What is said on the wire, from fixed seeds: conversations of two ends in memory, encoded messages, and values that go
// to other programs. The library's names stand in this file alone, so that a change of them is a change of one file.
#pragma once

#include "messages/structs.hpp"
#include "support/messages.hpp"
#include "support/pair.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <functional>

namespace test::wire_recording {

using kind = tp::frame_kind;
using bytes = std::vector<std::byte>;

/// One frame as it was sent (its last bytes are missing if the connection was lost), or a value.
struct said {
  /// of a frame: to_left (the owner, if only one end owns), to_right; otherwise encoded or value
  std::string direction;
  std::string what;  ///< the frame's kind; a value's name
  bytes content;
};
using saying = std::vector<said>;

/// The words of a frame are read here and not with the library, which is what is looked at.
inline std::uint64_t word_at(std::span<const std::byte> from, std::size_t word) {
  std::uint64_t w = 0;
  for (std::size_t i = 0; i < 8; ++i) w |= std::to_integer<std::uint64_t>(from[8 * word + i]) << (8 * i);
  return w;
}
/// Bytes of the frame that begins here, all in one segment; 0 if its first word is not there yet.
inline std::size_t frame_size(std::span<const std::byte> from) {
  if (from.size() < 8) return 0;
  EXPECT_EQ(word_at(from, 0) & 0xffffffffu, 0u) << "a frame of several segments";
  return static_cast<std::size_t>(8 + 8 * (word_at(from, 0) >> 32));
}
inline std::string kind_name(std::span<const std::byte> from) {
  static constexpr std::string_view names[] = {"nothing",     "describe",    "pull",   "chunk",   "end",
                                               "confirm",     "confirmed",   "cancel", "refused", "schema",
                                               "description", "schema_page", "locate", "located", "application"};
  if (from.size() < 24) return "part";
  const auto tag = static_cast<std::size_t>(word_at(from, 2) >> 32 & 0xffff);
  return tag < std::size(names) ? std::string(names[tag]) : "unknown";
}
inline bool is_chunk(const said& s) { return s.what == "chunk"; }
inline bool is_whole_frame(const said& s) {
  return s.direction != "value" && s.content.size() >= 24 && frame_size(s.content) == s.content.size();
}

/// Cuts the bytes of one direction into frames.
class recorder {
 public:
  recorder(saying& into, std::string direction) : into_(into), direction_(std::move(direction)) {}

  void add(std::span<const std::byte> more) {
    begun_.insert(begun_.end(), more.begin(), more.end());
    for (std::size_t n; (n = frame_size(begun_)) != 0 && n <= begun_.size();) keep(n);
  }
  /// The rest of what has begun will not come.
  void cut() {
    if (!begun_.empty()) keep(begun_.size());
  }

 private:
  void keep(std::size_t n) {
    const auto end = begun_.begin() + static_cast<std::ptrdiff_t>(n);
    into_.push_back({direction_, kind_name(begun_), bytes(begun_.begin(), end)});
    begun_.erase(begun_.begin(), end);
  }
  saying& into_;
  std::string direction_;
  bytes begun_;
};

/// An end whose bytes are recorded. Only the first `arriving` of them get to the other end.
class recorded_end : public pipe_end {
 public:
  std::uint64_t arriving = ~std::uint64_t{0};

  recorded_end(wire& in, wire& out, recorder& record) : pipe_end(in, out, {}, {}), out_(&out), record_(&record) {}

  tp::io_result write_some(std::span<const std::span<const std::byte>> spans) noexcept {
    std::size_t n = 0;
    for (const auto& s : spans) {
      record_->add(s);
      const auto arrives = static_cast<std::size_t>(std::min<std::uint64_t>(arriving, s.size()));
      out_->put(s.first(arrives));
      arriving -= arrives;
      n += s.size();
    }
    return {n > 0 ? tp::io_status::ok : tp::io_status::would_block, 0, n};
  }

 private:
  wire* out_;
  recorder* record_;
};

/// Serves at most 1000 bytes a chunk.
struct capped_limits : tp::default_limits {
  static constexpr std::uint64_t chunk_cap_bytes = 1000;
};
/// An owner with these limits, as `party` is one with the default ones.
template <class Limits>
struct limited_party {
  using owner_type = tp::owner<tp::xxhash_digest, Limits>;

  explicit limited_party(std::uint64_t seed)
      : random(seed), references(storage, [this] { return random(); }),
        memory(new std::uint64_t[2 * party::buffer_bytes / 8 + 8]),
        pool({reinterpret_cast<std::byte*>(memory.get()), 2 * party::buffer_bytes}, party::buffer_bytes),
        scratch(new std::uint64_t[8192]), end(references, pool, box) {}

  void publish(const model& m) { EXPECT_TRUE(references.publish(m.source(), version_of(m), true, {1, 2}, 0)); }

  tp::owner_storage<8, 64> storage;
  generator random;
  owner_type references;
  std::unique_ptr<std::uint64_t[]> memory;
  tp::buffer_pool<> pool;
  inbox box;
  std::unique_ptr<std::uint64_t[]> scratch;
  tp::endpoint<tp::capnp_framing, Limits, owner_type, inbox> end;
};

/// Two ends, each sentence of which is kept. Streams take and give all that they are asked for, so that little depends
/// on who is called when.
template <class Left = party>
class conversation {
 public:
  Left left{11};
  party right{22};
  saying all;

  /// Until `done`, or until nothing moves any more.
  template <class L, class R, class Done>
  void run(L& l, R& r, Done done) {
    for (int quiet = 0; quiet < 5 && !done();)
      quiet = turn(left, l, left_stream_) + turn(right, r, right_stream_) == 0 ? quiet + 1 : 0;
  }
  void settle() {
    tp::no_transfer nothing, neither;
    run(nothing, neither, [] { return false; });
  }
  /// The right end pulls, until it has ended or the connection is lost (see lose_after).
  template <class Transfer>
  tp::errc pull(Transfer& t) {
    tp::no_transfer idle;
    right.end.begin_pull();
    run(idle, t, [&] { return t.ended() || t.pause().count() > 0; });
    right.end.end_pull(t);
    if (t.pause().count() > 0) return tp::errc::busy;
    if (!t.ended()) return tp::errc::connection_lost;
    take_leave(t);
    return t.outcome() ? tp::errc{} : t.outcome().error().code;
  }
  template <class Transfer>
  void take_leave(const Transfer& t) {
    const auto farewell = t.farewell();
    EXPECT_TRUE(!farewell || right.end.send_control(*farewell));
    settle();
  }
  /// A request as any other program may send it, and its answers.
  void ask(const tp::frame& m) {
    const frame f = encode(m);
    to_left_said_.add(f.bytes());
    to_left_.put(f.bytes());
    right.end.begin_pull();
    settle();
  }
  /// The nonce of the serve that was described last.
  std::uint64_t nonce() const {
    for (std::size_t i = all.size(); i-- > 0;)
      if (all[i].what == "description") return decoded(frame(all[i].content)).m.nonce;
    ADD_FAILURE() << "nothing was described";
    return 0;
  }
  void lose_after(std::uint64_t bytes_of_left) { left_stream_.arriving = bytes_of_left; }
  void reconnect() {
    left.renew(), right.renew();
    to_left_said_.cut(), to_right_said_.cut();
    for (wire* const w : {&to_left_, &to_right_}) w->bytes.clear(), w->begin = 0;
    left_stream_.arriving = ~std::uint64_t{0};
  }
  saying over() {
    to_left_said_.cut(), to_right_said_.cut();
    EXPECT_FALSE(failed_) << "an end closed the connection";
    return std::move(all);
  }

 private:
  template <class Party, class Transfer>
  std::size_t turn(Party& p, Transfer& t, recorded_end& stream) {
    const auto did = tp::pump_once(p.end, t, stream, {reinterpret_cast<std::byte*>(p.scratch.get()), 65536});
    failed_ = failed_ || !did;
    return did ? did->received + did->sent : 0;
  }
  wire to_left_, to_right_;
  recorder to_left_said_{all, "to_left"}, to_right_said_{all, "to_right"};
  recorded_end left_stream_{to_left_, to_right_, to_right_said_}, right_stream_{to_right_, to_left_, to_left_said_};
  bool failed_ = false;
};

inline tp::frame asking(kind k, std::uint32_t id, std::uint64_t offset = 0, std::uint32_t length = 0) {
  tp::frame m;
  m.kind = k;
  m.id = id;
  m.ref = {1, 2};
  m.offset = offset;
  m.length = length;
  return m;
}
inline tp::frame settling(kind k, std::uint32_t id, std::uint64_t nonce, std::uint64_t digest = 0,
                          bool verified = false) {
  tp::frame m = asking(k, id);
  m.nonce = nonce;
  m.digest = digest;
  m.flag = verified;
  return m;
}

/// One pull of the mixed model; the publication is {1, 2}.
template <class Chunking, class Integrity, class Left>
tp::errc pulled(conversation<Left>& c, tp::pull_request request, Chunking chunking = {}) {
  model mine = mixed_model();
  tp::land to(mine.destination());
  request.ref = {1, 2};
  transfer<Chunking, Integrity> t(to, request, chunking, c.right.end.next_id());
  return c.pull(t);
}
template <class Chunking, class Integrity = tp::image_digest>
saying pull_of(tp::pull_request request, Chunking chunking = {}, bool verifiable = true) {
  const model source = mixed_model().fill(1);
  conversation<> c;
  c.left.publish(source, {1, 2}, 0, verifiable);
  EXPECT_EQ((pulled<Chunking, Integrity>(c, request, chunking)), tp::errc{});
  return c.over();
}
template <class Chunking>
saying capped_pull(tp::errc expected = {}) {
  const model source = mixed_model().fill(1);
  conversation<limited_party<capped_limits>> c;
  c.left.publish(source);
  EXPECT_EQ((pulled<Chunking, tp::image_digest>(c, {})), expected);
  return c.over();
}
/// Requests that are not a recipient's, at an owner of the mixed model.
inline saying answers_to(const std::vector<tp::frame>& questions) {
  const model source = mixed_model().fill(1);
  conversation<> c;
  c.left.publish(source);
  for (const tp::frame& m : questions) c.ask(m);
  return c.over();
}

inline saying repeated_confirmation(bool with_name) {
  const model source = mixed_model().fill(1);
  conversation<> c;
  c.left.publish(source, {1, 2}, 2);
  tp::frame describe = asking(kind::describe, 1);
  describe.recipient = {with_name ? 17u : 0u};
  c.ask(describe);
  tp::frame confirm = settling(kind::confirm, 2, c.nonce(), version_of(source), true);
  confirm.recipient = describe.recipient;
  c.ask(confirm);  // too early: the end was not served
  c.ask(asking(kind::pull, 3, 0, 100'000));
  for (confirm.id = 4; confirm.id < 7; ++confirm.id) c.ask(confirm);
  confirm.digest ^= 1;  // said otherwise
  c.ask(confirm);
  return c.over();
}
inline saying wrong_digest_confirmed() {
  const model source = mixed_model().fill(1);
  conversation<> c;
  c.left.publish(source);
  c.ask(asking(kind::describe, 1));
  c.ask(asking(kind::pull, 2, 0, 100'000));
  for (std::uint32_t id = 3; id < 5; ++id) c.ask(settling(kind::confirm, id, c.nonce(), 0xbad, true));
  return c.over();
}
inline saying cancelled(tp::error why, std::uint32_t reason) {
  const model source = mixed_model().fill(1);
  conversation<> c;
  c.left.publish(source);
  model mine = mixed_model();
  tp::land to(mine.destination());
  tp::pull_request request{.ref = {1, 2}};
  request.recipient = tp::recipient_named("site-1");
  transfer<tp::fixed_bytes<4096>> t(to, request, {}, 1);
  c.lose_after(2000);  // nothing more comes, so that it stops at the same byte whatever is read at a time
  EXPECT_EQ(c.pull(t), tp::errc::connection_lost);
  t.give_reason(reason);
  t.fail(why);
  c.take_leave(t);
  tp::frame late = settling(kind::confirm, 90, c.nonce(), version_of(source), true);
  late.recipient = request.recipient;
  c.ask(late);  // is told that it is over
  return c.over();
}
template <class Integrity>
saying source_changed() {
  model source = mixed_model().fill(1);
  conversation<> c;
  c.left.publish(source);
  source.fill(2);
  const auto expected = Integrity::whole ? tp::errc::digest_mismatch : tp::errc{};
  EXPECT_EQ((pulled<tp::fixed_bytes<4096>, Integrity>(c, {})), expected);
  return c.over();
}

/// Tensors t100, t101, ..., some of them empty.
inline model numbered(std::size_t n, std::size_t another = ~std::size_t{0}) {
  model m;
  for (std::size_t i = 0; i < n; ++i)
    m.add("t" + std::to_string(100 + i), i % 3 == 0 ? tp::dtype::f32 : tp::dtype::u8,
          {i % 5 == 4 ? 0u : 40u + (i == another)});
  return std::move(m.ready());
}
template <class Chunking, class Integrity = tp::image_digest>
saying subset_of(tp::errc expected = {}, std::uint64_t columns = 40) {
  const model source = numbered(30).fill(1);
  conversation<> c;
  c.left.publish(source);
  model mine;
  mine.add("t103", tp::dtype::f32, {columns})
      .add("t105", tp::dtype::u8, {40})
      .add("t104", tp::dtype::u8, {0})
      .add("t120", tp::dtype::u8, {40})
      .ready();
  const std::vector<std::string_view> wanted{"t120", "t103", "t105", "t104"};
  tp::land to(mine.destination());
  transfer<Chunking, Integrity> t(to, {.ref = {1, 2}, .subset = wanted}, {}, 1);
  EXPECT_EQ(c.pull(t), expected);
  return c.over();
}
inline saying locates() {
  const model source = numbered(30).fill(1);
  conversation<> c;
  c.left.publish(source);
  const std::vector<std::vector<std::string_view>> lists{
      {"t100", "absent"}, {"t100", "t101", "t100"}, {}, {"t104"}, {"t129", "t100"}};
  tp::frame m = asking(kind::locate, 1);
  for (const auto& names : lists) {
    m.names = names;
    c.ask(m);
    ++m.id;
  }
  m.version = 5;
  c.ask(m);
  m.version = 0, m.ref = {3, 4};
  c.ask(m);
  std::vector<std::byte*> taken;
  while (c.left.pool.available() > 0) taken.push_back(c.left.pool.acquire());
  m.ref = {1, 2};
  c.ask(m);  // no buffer for the answer: busy
  for (std::byte* const buffer : taken) c.left.pool.release(buffer);
  return c.over();
}
inline saying schema_mismatch() {
  const model theirs = numbered(50).fill(1);
  model mine = numbered(50, 48);  // the difference lies in the last page
  conversation<> c;
  c.left.publish(theirs);
  tp::land to(mine.destination());
  transfer<> t(to, {{1, 2}}, {}, 1);
  EXPECT_EQ(c.pull(t), tp::errc::schema_mismatch);
  return c.over();
}

inline saying refusals() {
  const model source = mixed_model().fill(1), newer = mixed_model().fill(2);
  conversation<> c;
  const auto expect = [&](tp::errc why, tp::pull_request request = {}) {
    EXPECT_EQ((pulled<tp::fixed_bytes<4096>, tp::image_digest>(c, request)), why);
  };
  expect(tp::errc::unknown_reference);
  c.left.publish(source);
  expect(tp::errc::stale_version, {.version = 5});
  EXPECT_TRUE(c.left.references.withdraw({1, 2}));
  expect(tp::errc::withdrawn);
  c.left.publish(newer);
  expect(tp::errc::stale_version, {.version = version_of(source)});
  expect({}, {.version = version_of(newer)});
  return c.over();
}
/// Another version takes the place of the one that is being pulled, or nothing does.
inline saying gone_meanwhile(bool republished) {
  const model source = mixed_model().fill(1), newer = mixed_model().fill(2);
  conversation<> c;
  c.left.publish(source);
  model mine = mixed_model();
  tp::land to(mine.destination());
  transfer<tp::fixed_bytes<4096>> t(to, {{1, 2}}, {}, 1);
  c.lose_after(1500);
  EXPECT_EQ(c.pull(t), tp::errc::connection_lost);
  if (republished) {
    c.left.publish(newer);
  } else {
    EXPECT_TRUE(c.left.references.withdraw({1, 2}));
  }
  c.reconnect();
  t.restart();
  EXPECT_EQ(c.pull(t), republished ? tp::errc::stale_version : tp::errc::withdrawn);
  return c.over();
}
/// The same while the connection stays, and what a confirmation is told then.
inline saying gone_under_way() {
  const model source = mixed_model().fill(1), newer = mixed_model().fill(2);
  conversation<> c;
  c.left.publish(source);
  c.ask(asking(kind::describe, 1));
  const std::uint64_t nonce = c.nonce();
  tp::frame of_old = asking(kind::pull, 2, 0, 100'000);
  of_old.version = version_of(source);
  c.ask(of_old);
  c.left.publish(newer);
  c.ask(of_old);
  c.ask(settling(kind::confirm, 3, nonce, version_of(source), true));
  c.ask(asking(kind::pull, 4, 0, 100));
  EXPECT_TRUE(c.left.references.withdraw({1, 2}));
  c.ask(asking(kind::pull, 5, 0, 100));
  c.ask(asking(kind::schema, 6));
  c.ask(settling(kind::confirm, 7, nonce, version_of(source), true));
  return c.over();
}
inline saying already_final() {
  const model source = mixed_model().fill(1);
  conversation<> c;
  c.left.publish(source, {1, 2}, 1);
  tp::pull_request request;
  request.recipient = tp::recipient_named("site-1");
  EXPECT_EQ((pulled<tp::fixed_bytes<4096>, tp::image_digest>(c, request)), tp::errc{});
  EXPECT_EQ((pulled<tp::fixed_bytes<4096>, tp::image_digest>(c, request)), tp::errc::already_final);
  return c.over();
}
inline saying busy() {
  const model source = mixed_model().fill(1);
  conversation<> c;
  for (std::uint64_t i = 0; i < 6; ++i) c.left.publish(source, {i + 1, 2});
  for (std::uint32_t i = 0; i < 6; ++i) {
    tp::frame m = asking(kind::describe, i);
    m.ref = {6 - i, 2};
    c.ask(m);
  }
  EXPECT_EQ((pulled<tp::fixed_bytes<1024>, tp::image_digest>(c, {})), tp::errc::busy);  // {1, 2} came last
  return c.over();
}

/// The connection is lost after so many bytes of the owner, and again after as many.
template <class Integrity>
saying reconnected(std::uint64_t lost_after) {
  const model source = mixed_model().fill(1);
  conversation<> c;
  c.left.publish(source, {1, 2}, 1);
  model mine = mixed_model();
  tp::land to(mine.destination());
  tp::pull_request request{.ref = {1, 2}};
  request.recipient = {77};
  transfer<tp::fixed_bytes<2048>, Integrity> t(to, request, {}, 1);
  for (int connection = 0; connection < 2; ++connection) {
    c.lose_after(lost_after);
    EXPECT_EQ(c.pull(t), tp::errc::connection_lost);
    c.reconnect();
    t.restart();
  }
  EXPECT_EQ(c.pull(t), tp::errc{});
  EXPECT_TRUE(mine.same_tensors(source));
  return c.over();
}
/// Another program goes on from a cursor, whose bytes are kept, too.
inline saying resumed() {
  const model source = mixed_model().fill(1);
  conversation<> c;
  c.left.publish(source);
  model mine = mixed_model();
  tp::land to(mine.destination());
  const tp::pull_request request{.ref = {1, 2}};
  tp::resume_cursor kept;
  {
    transfer<tp::fixed_bytes<2048>> t(to, request, {}, 1);
    c.lose_after(3333);
    EXPECT_EQ(c.pull(t), tp::errc::connection_lost);
    kept = t.cursor();
  }
  c.reconnect();
  const auto encoded = tp::encode(kept);
  c.all.push_back({"value", "cursor", bytes(encoded.begin(), encoded.end())});
  transfer<tp::fixed_bytes<2048>> t(to, request, {}, 1);
  EXPECT_TRUE(t.resume(kept));
  EXPECT_EQ(c.pull(t), tp::errc{});
  EXPECT_TRUE(mine.same_tensors(source));
  return c.over();
}

/// Messages of several sizes, both ways at once.
inline saying applications() {
  generator random(8);
  conversation<> c;
  const std::vector<tp::reference> eight(
      8, tp::reference{{0x0102030405060708, 0x1112131415161718}, 0x2122232425262728, 0x3132333435363738});
  for (const std::size_t n : {0u, 1u, 8u, 13u, 500u, 4097u, 65535u, 65536u}) {
    const bytes there = random.bytes(n), back = random.bytes(n);
    const auto kind_there = static_cast<std::uint32_t>(n + 1);
    std::span<const tp::reference> with_there, with_back;
    if (n % 2 == 0) with_there = some_references;
    if (n == 13) with_back = eight;
    EXPECT_TRUE(c.left.end.send_message(kind_there, with_there, there));
    EXPECT_TRUE(c.right.end.send_message(0xffffffff, with_back, back));
    c.settle();
  }
  EXPECT_TRUE(c.left.box.count == 8 && c.right.box.count == 8);
  return c.over();
}
/// Both ends pull from each other and send messages meanwhile.
inline saying both_ways() {
  const model a = mixed_model().fill(1), b = numbered(20).fill(2);
  model a_copy = mixed_model(), b_copy = numbered(20);
  conversation<> c;
  c.left.publish(a, {1, 2}), c.right.publish(b, {3, 4});
  tp::land to_right(a_copy.destination()), to_left(b_copy.destination());
  transfer<tp::fixed_bytes<4096>, tp::chunk_and_image_digest> right(to_right, {{1, 2}}, {}, 1);
  transfer<> left(to_left, {{3, 4}}, {}, 1);
  c.left.end.begin_pull(), c.right.end.begin_pull();
  const bytes text(520, std::byte{5});
  EXPECT_TRUE(c.left.end.send_message(1, {}, text) && c.right.end.send_message(2, some_references, text));
  c.run(left, right, [] { return false; });
  EXPECT_TRUE(a_copy.same_tensors(a) && b_copy.same_tensors(b) && c.left.box.count == 1 && c.right.box.count == 1);
  return c.over();
}

/// A message of every kind with every member set: those that the kind has not must leave no trace.
inline std::vector<tp::frame> full_messages() {
  std::vector<tp::frame> all;
  tp::frame m;
  m.status = tp::status::stale;
  m.id = 0x81828384;
  m.ref = {0x0102030405060708, 0x1112131415161718};
  m.version = 0x2122232425262728;
  m.nonce = 0x3132333435363738;
  m.fingerprint = 0x4142434445464748;
  m.digest = 0x5152535455565758;
  m.offset = 0x6162636465666768;
  m.image_bytes = 0x7172737475767778;
  m.data_start = 0x8182838485868788;
  m.tensors = 0x91929394;
  m.length = 0xa1a2a3a4;
  m.delay_ms = 0xb1b2b3b4;
  m.application = 0xc1c2c3c4;
  m.window = 0xd1d2;
  m.reason = 0xe1e2e3e4;
  m.recipient = {0xf1f2f3f4f5f6f7f8};
  m.chunk_digest = tp::digest_kind::crc32c;
  m.flag = true;
  m.rows = some_rows;
  m.names = some_names;
  m.ranges = some_ranges;
  m.references = some_references;
  m.body = some_body;
  for (const kind k : {kind::nothing, kind::describe, kind::pull, kind::end, kind::confirm, kind::confirmed,
                       kind::cancel, kind::refused, kind::schema, kind::description, kind::schema_page, kind::locate,
                       kind::located, kind::application}) {
    m.kind = k;
    m.flag = k != kind::pull;
    all.push_back(m);
  }
  m.kind = kind::refused;
  for (std::uint16_t s = 0; s <= static_cast<std::uint16_t>(tp::status::already_final); ++s) {
    m.status = static_cast<tp::status>(s);
    all.push_back(m);
  }
  m.kind = kind::pull;
  m.flag = false;
  for (std::uint8_t d = 0; d < 3; ++d) {
    m.chunk_digest = static_cast<tp::digest_kind>(d);
    all.push_back(m);
  }
  // and with nothing in it
  for (const kind k :
       {kind::description, kind::confirm, kind::schema_page, kind::locate, kind::located, kind::application}) {
    tp::frame empty;
    empty.kind = k;
    all.push_back(empty);
  }
  // slices, and runs of one
  m.kind = kind::locate;
  m.slices = some_slices;
  all.push_back(m);
  m.kind = kind::pull;
  m.chunk_digest = tp::digest_kind::none;
  m.flag = true;
  all.push_back(m);
  return all;
}
template <class Framing>
bytes encoded_with(const tp::frame& m) {
  std::vector<std::uint64_t> room(10'000);
  const auto out = std::as_writable_bytes(std::span(room));
  const auto n = Framing::encode(m, out);
  EXPECT_TRUE(n);
  return n ? bytes(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(*n)) : bytes{};
}
inline saying encoded_messages() {
  saying all;
  for (const tp::frame& m : full_messages()) {
    const bytes f = encoded_with<tp::word_framing>(m);
    EXPECT_EQ(f, encoded_with<tp::capnp_framing>(m));
    all.push_back({"encoded", kind_name(f), f});
  }
  for (const std::size_t n : {0u, 1u, 13u}) {
    const frame f = chunk_frame(full_messages().front(), std::span(some_body).first(n));
    all.push_back({"encoded", kind_name(f.bytes()), bytes(f.bytes().begin(), f.bytes().end())});
  }
  return all;
}

inline bytes little_endian(std::initializer_list<std::uint64_t> words) {
  bytes b;
  for (const std::uint64_t w : words)
    for (unsigned i = 0; i < 8; ++i) b.push_back(static_cast<std::byte>(w >> (8 * i)));
  return b;
}
inline bytes of_text(std::string_view text) {
  const auto b = std::as_bytes(std::span(text));
  return {b.begin(), b.end()};
}
inline void add_image(saying& all, const std::string& name, const model& m) {
  const bytes image = m.image_bytes();
  const auto& schema = m.schema();
  all.push_back({"value", name + "_header",
                 bytes(image.begin(), image.begin() + static_cast<std::ptrdiff_t>(schema.header_bytes))});
  all.push_back({"value", name + "_fingerprint", little_endian({schema.fingerprint})});
  all.push_back({"value", name + "_version", little_endian({version_of(m)})});
}
inline saying images() {
  saying all;
  add_image(all, "mixed", mixed_model().fill(1));
  model strange;
  strange.add("tab\t\"quote\" \\ \x01", tp::dtype::bf16, {3})
      .add(std::string(300, 'n'), tp::dtype::f64, {1, 2, 3, 1})
      .add("", tp::dtype::c64, {2});
  add_image(all, "strange", strange.ready().fill(3));
  model none;
  add_image(all, "none", none.ready());
  return all;
}
inline saying texts() {
  saying all;
  const tp::resume_cursor cursor{{0x0102030405060708, 0x1112131415161718},
                                 0x2122232425262728,
                                 0x3132333435363738,
                                 0x4142434445464748,
                                 0x5152535455565758};
  const auto encoded = tp::encode(cursor);
  all.push_back({"value", "cursor", bytes(encoded.begin(), encoded.end())});
  tp::locator there(tp::reference{cursor.ref, cursor.version, cursor.fingerprint});
  all.push_back({"value", "locator", of_text(tp::to_text(there).view())});
  EXPECT_TRUE(there.add("example.org:4711") && there.add("[::1]:80"));
  all.push_back({"value", "locator", of_text(tp::to_text(there).view())});
  all.push_back({"value", "recipient", little_endian({tp::recipient_named("site-1").value})});
  return all;
}
/// A message struct with a set of tensors, of which two are inline and one is a reference.
inline saying decomposed() {
  saying all;
  const auto values = std::make_unique<split_model>();
  generator random(5);
  for (auto& row : values->weight)
    for (float& f : row) f = static_cast<float>(random.below(1000)) / 8;
  for (float& f : values->bias) f = static_cast<float>(random.below(1000)) / 8;
  values->step = -12;
  task t = some_task();
  t.elsewhere.reference = {{7, 8}, 9, 10};
  EXPECT_TRUE(t.elsewhere.add("example.org:4711"));
  t.model = tp::tensors_of<split_model>(*values);
  publisher_of<net> owner;
  const auto apart = messages::decompose(owner, t, {.recipients = 1, .id = {5, 6}});
  EXPECT_TRUE(apart);
  if (!apart) return all;
  all.push_back({"value", "body", bytes(apart->body().begin(), apart->body().end())});
  for (const tp::reference& r : apart->references())
    all.push_back({"value", "reference", little_endian({r.id.high, r.id.low, r.version, r.fingerprint})});
  apart->withdraw(owner);
  return all;
}

struct scenario {
  std::string name;
  std::function<saying()> play;
};
inline std::vector<scenario> scenarios() {
  using tp::errc;
  const auto window = [](std::uint32_t requests) { return tp::pull_request{.window = requests}; };
  return {
      {"fixed_1024", [=] { return pull_of<tp::fixed_bytes<1024>>({}); }},
      {"fixed_2048_window_1", [=] { return pull_of<tp::fixed_bytes<2048>>(window(1)); }},
      {"fixed_768_window_100", [=] { return pull_of<tp::fixed_bytes<768>>(window(100)); }},
      {"fixed_64K", [=] { return pull_of<tp::fixed_bytes<65536>>({}); }},
      {"up_to_1999_window_2", [=] { return pull_of(window(2), tp::bytes_up_to<4096>{1999}); }},
      {"per_tensor_2000_window_8", [=] { return pull_of<tp::per_tensor<2000>>(window(8)); }},
      {"whole", [=] { return pull_of<tp::whole>({}); }},
      {"chunk_digest", [=] { return pull_of<tp::fixed_bytes<2048>, tp::chunk_digest>({}); }},
      {"chunk_and_image_digest", [=] { return pull_of<tp::per_tensor<4096>, tp::chunk_and_image_digest>({}); }},
      {"unverified", [=] { return pull_of<tp::fixed_bytes<4096>, tp::unverified>({}); }},
      {"unverifiable", [=] { return pull_of<tp::fixed_bytes<4096>>({.unverified = true}, {}, false); }},
      {"repeated_confirmation", [=] { return repeated_confirmation(false); }},
      {"repeated_confirmation_named", [=] { return repeated_confirmation(true); }},
      {"wrong_digest_confirmed", wrong_digest_confirmed},
      {"cancelled", [=] { return cancelled({errc::cancelled, 0, 0, {}}, 4711); }},
      {"cancelled_for_its_bytes", [=] { return cancelled({errc::digest_mismatch, 0, 0, {}}, 0); }},
      {"digest_mismatch", [=] { return source_changed<tp::image_digest>(); }},
      {"chunk_digest_of_changed_source", [=] { return source_changed<tp::chunk_digest>(); }},
      {"subset", [=] { return subset_of<tp::fixed_bytes<64>>(); }},
      {"subset_per_tensor", [=] { return subset_of<tp::per_tensor<100>, tp::chunk_and_image_digest>(); }},
      {"subset_schema_mismatch", [=] { return subset_of<tp::fixed_bytes<64>>(errc::schema_mismatch, 41); }},
      {"locates", locates},
      {"schema_mismatch", schema_mismatch},
      {"refusals", refusals},
      {"republished", [=] { return gone_meanwhile(true); }},
      {"withdrawn", [=] { return gone_meanwhile(false); }},
      {"gone_under_way", gone_under_way},
      {"already_final", already_final},
      {"busy", busy},
      {"ranges",
       [=] {
         const std::uint64_t all = mixed_model().schema().image_bytes;
         return answers_to({asking(kind::pull, 1, all), asking(kind::pull, 2, all, 8),
                            asking(kind::pull, 3, all - 5, 100), asking(kind::pull, 4, all + 1, 8),
                            asking(kind::pull, 5, ~std::uint64_t{0}, 8), asking(kind::pull, 6, 8),
                            asking(kind::pull, 7, 3, 1), asking(kind::pull, 8, 0, ~0u)});
       }},
      {"bad_requests",
       [=] {
         tp::frame other_schema = asking(kind::pull, 1, 0, 8), other_digest = asking(kind::pull, 2, 0, 8),
                   other_version = asking(kind::pull, 3, 0, 8);
         other_schema.fingerprint = 1, other_digest.chunk_digest = tp::digest_kind::crc32c, other_version.version = 1;
         tp::frame elsewhere = settling(kind::confirm, 7, 3);
         elsewhere.ref = {3, 4};
         return answers_to({other_schema, other_digest, other_version, settling(kind::confirm, 4, 0),
                            settling(kind::confirm, 5, 3), settling(kind::cancel, 6, 3), elsewhere,
                            asking(kind::schema, 8, 7), asking(kind::schema, 9, 1000)});
       }},
      {"applications", applications},
      {"both_ways", both_ways},
      {"reconnected", [=] { return reconnected<tp::image_digest>(1500); }},
      {"reconnected_chunk_digest", [=] { return reconnected<tp::chunk_and_image_digest>(2500); }},
      {"resumed", resumed},
      {"capped", [=] { return capped_pull<tp::fixed_bytes<4096>>(); }},
      {"capped_per_tensor", [=] { return capped_pull<tp::per_tensor<4096>>(); }},
      {"capped_whole", [=] { return capped_pull<tp::whole>(errc::does_not_fit); }},
      {"encoded", encoded_messages},
      {"images", images},
      {"texts", texts},
      {"decomposed", decomposed},
  };
}

/// Every member, so that two messages are equal if their texts are.
inline std::string text_of(const tp::frame& m) {
  std::string text;
  const auto put = [&text](auto... numbers) { ((text += std::to_string(numbers) + ' '), ...); };
  const auto put_text = [&](std::string_view s) { put(s.size()), text += s; };
  put(static_cast<int>(m.kind), static_cast<int>(m.status), m.id, m.ref.high, m.ref.low, m.version, m.nonce,
      m.fingerprint, m.digest, m.offset, m.image_bytes, m.data_start, m.tensors, m.length, m.delay_ms, m.application,
      m.window, m.reason, m.recipient.value, static_cast<int>(m.chunk_digest), m.flag);
  for (const auto& row : m.rows) {
    put_text(row.name), put_text(row.dtype);
    for (const std::uint64_t extent : row.shape) put(extent);
  }
  put(m.rows.size());
  for (const auto& name : m.names) put_text(name);
  for (const auto& range : m.ranges) put(range.begin, range.end);
  for (const auto& r : m.references) put(r.id.high, r.id.low, r.version, r.fingerprint);
  put(m.names.size(), m.ranges.size(), m.references.size());
  put_text({reinterpret_cast<const char*>(m.body.data()), m.body.size()});
  return text;
}
/// What a framing makes of a control frame, and of that again.
struct read_and_written {
  std::string text;  ///< empty: not read
  bytes again;
};
template <class Framing>
read_and_written through(const frame& f) {
  const auto lists = std::make_unique<typename Framing::decode_storage>();
  tp::frame m;
  if (!Framing::decode(f.bytes(), m, *lists)) return {};
  return {text_of(m), encoded_with<Framing>(m)};
}
inline read_and_written through_words(const frame& f) { return through<tp::word_framing>(f); }
inline read_and_written through_capnp(const frame& f) { return through<tp::capnp_framing>(f); }

}  // namespace test::wire_recording
