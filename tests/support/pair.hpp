// Two connected ends in one process, driven without a clock: the owner's ("left") and the recipient's ("right"); both
// can do both. A test may change every frame on its way.
#pragma once

#include "frames.hpp"
#include "memory_pipe.hpp"
#include "models.hpp"

#include <tensorpull/chunking/policies.hpp>
#include <tensorpull/consumers/land.hpp>
#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/integrity/xxhash/policies.hpp>
#include <tensorpull/links/pump.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>
#include <tensorpull/protocol/owner/owner.hpp>
#include <tensorpull/protocol/recipient/transfer.hpp>
#include <tensorpull/protocol/roles.hpp>

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace test {

struct received_message {
  std::uint32_t kind;
  std::vector<tp::reference> references;
  byte_vector body;
};
struct inbox {
  std::vector<received_message> got;
  std::uint64_t count = 0;
  bool keep = true;
  bool takes = true;
  bool ready() const noexcept { return takes; }
  void on_message(const tp::frame& m) {
    ++count;
    if (keep)
      got.push_back({m.application, {m.references.begin(), m.references.end()}, {m.body.begin(), m.body.end()}});
  }
};

using owner = tp::owner<tp::xxhash_digest>;

#ifdef TENSORPULL_TEST_WITHOUT_CAPNP
using tested_framing = tp::word_framing;
#else
/// The framing of both ends: the default, or with TENSORPULL_TEST_FRAMING=capnp in the environment the one that reads
/// with Cap'n Proto's library. One program thus tests both; both write the same bytes.
struct tested_framing : tp::word_framing {
  template <class Words>
  struct either {
    Words words;
    tp::capnp_framing::decode_storage library;
  };
  using decode_storage = either<tp::word_framing::decode_storage>;
  using short_storage = either<tp::word_framing::short_storage>;
  template <class Words>
  static tp::result<void> decode(const_byte_span bytes, tp::frame& m, either<Words>& lists) noexcept {
    static const bool with_library = [] {
      const char* const name = std::getenv("TENSORPULL_TEST_FRAMING");
      return name != nullptr && std::string_view(name) == "capnp";
    }();
    return with_library ? tp::capnp_framing::decode(bytes, m, lists.library)
                        : tp::word_framing::decode(bytes, m, lists.words);
  }
};
#endif
using endpoint = tp::endpoint<tested_framing, tp::default_limits, owner, inbox>;

/// Everything that one process has.
struct party {
  static constexpr std::size_t buffer_bytes = 66'560;

  explicit party(std::uint64_t seed, std::size_t buffers = 4)
      : random(seed), references(storage, [this] { return random(); }),
        memory(new std::uint64_t[buffers * buffer_bytes / 8 + 8]),
        pool({reinterpret_cast<std::byte*>(memory.get()), buffers * buffer_bytes}, buffer_bytes),
        scratch(new std::uint64_t[8192]), end(references, pool, box) {}

  tp::ref_id publish(const model& m, tp::ref_id id = {1, 2}, std::uint32_t recipients = 0, bool verifiable = true) {
    const auto r = references.publish(m.source(), verifiable ? version_of(m) : 77, verifiable, id, recipients);
    EXPECT_TRUE(r);
    return id;
  }
  tp::publication_status status(tp::ref_id id = {1, 2}) const {
    const auto s = references.status_of(id);
    EXPECT_TRUE(s);
    return s ? *s : tp::publication_status{};
  }

  tp::owner_storage<8, 64> storage;
  generator random;
  owner references;
  std::unique_ptr<std::uint64_t[]> memory;
  tp::buffer_pool<> pool;
  inbox box;
  std::unique_ptr<std::uint64_t[]> scratch;
  endpoint end;

  /// The process starts again: it has forgotten what it published and for whom.
  void restart() {
    std::destroy_at(&end);
    std::destroy_at(&references);
    std::destroy_at(&storage);
    std::construct_at(&storage);
    std::construct_at(&references, storage, [this] { return random(); });
    std::construct_at(&end, references, pool, box);
  }
  /// Another connection in the place of this one.
  void renew() {
    std::destroy_at(&end);
    std::construct_at(&end, references, pool, box);
  }
};

/// Changes a frame, or drops it (by making it empty), or puts others behind it.
using tampering = std::function<void(byte_vector& frame)>;

class pair {
 public:
  party left, right;
  wire to_right, to_left;
  tampering owner_lies;  ///< sees every frame that the left end sends
  std::optional<tp::error> left_error, right_error;
  std::uint64_t rounds = 0;

  explicit pair(cut every = {}, std::size_t buffers = 4)
      : left(11, buffers), right(22, buffers), left_stream_(to_left, sent_, every, every),
        right_stream_(to_right, to_left, every, every) {}

  /// One round of both ends. False once an end has failed.
  template <class L, class R>
  bool pump(L& l, R& r) {
    ++rounds;
    if (!left_error) {
      const auto did = tp::pump_once(left.end, l, left_stream_, scratch(left));
      if (!did) left_error = did.error();
      moved_ = did ? did->received + did->sent + did->works : 0;
      relay();
    }
    if (!right_error) {
      const auto did = tp::pump_once(right.end, r, right_stream_, scratch(right));
      if (!did) right_error = did.error();
      else moved_ += did->received + did->sent + did->works;
    }
    return !left_error && !right_error;
  }
  /// Until `done`, an error, or until nothing moves any more; false in the last two cases.
  template <class L, class R, class Done>
  bool run(L& l, R& r, Done done) {
    for (int quiet = 0; !done();) {
      if (!pump(l, r)) return done();
      quiet = moved_ == 0 ? quiet + 1 : 0;
      if (quiet > 4) return done();
    }
    return true;
  }
  /// The right end pulls from the left one, to the end.
  template <class Transfer>
  tp::result<tp::receipt> pull(Transfer& t) {
    tp::no_transfer idle;
    right.end.begin_pull();
    if (run(idle, t, [&] { return t.ended() || t.pause().count() > 0; }) && !t.ended()) t.fail({errc::busy, 0, 0, {}});
    if (!t.ended() && right_error) return tp::failure(*right_error);
    if (!t.ended()) return left_error ? tp::failure(*left_error) : tp::failure(errc::timed_out);
    right.end.end_pull(t);
    if (const auto farewell = t.farewell(); farewell && !right_error) right.end.send_control(*farewell);
    if (!right_error && !left_error) run(idle, idle, [] { return false; });
    return t.outcome();
  }
  /// The connection is lost with all that is on its way; another takes its place.
  void reconnect() {
    left.renew(), right.renew();
    for (wire* const w : {&to_left, &to_right, &sent_}) w->bytes.clear(), w->begin = 0;
    left_error.reset(), right_error.reset();
  }
  wire& sent_by_left() noexcept { return sent_; }
  void hang_up() { left_stream_.close(), right_stream_.close(); }

 private:
  static byte_span scratch(party& p) { return {reinterpret_cast<std::byte*>(p.scratch.get()), 65536}; }

  /// Whole frames from the left end, through the lie, to the right end.
  void relay() {
    if (!owner_lies) {
      if (sent_.waiting() > 0)
        to_right.put({sent_.bytes.data() + sent_.begin, sent_.waiting()}), sent_.bytes.clear(), sent_.begin = 0;
      return;
    }
    while (sent_.waiting() > 0) {
      const const_byte_span have(sent_.bytes.data() + sent_.begin, sent_.waiting());
      const auto size = tp::detail::measure_frame(have, ~std::size_t{0}, 16);
      if (!size || !*size || have.size() < **size) return;
      byte_vector f(have.begin(), have.begin() + static_cast<std::ptrdiff_t>(**size));
      sent_.begin += **size;
      owner_lies(f);
      to_right.put(f);
    }
    sent_.bytes.clear(), sent_.begin = 0;
  }

  wire sent_;
  pipe_end left_stream_, right_stream_;
  std::size_t moved_ = 0;
};

/// The kind of a frame as it travels.
inline tp::frame_kind kind_of(const_byte_span f) {
  return static_cast<tp::frame_kind>(tp::load_le64(f.data() + 16) >> 32 & 0xffff);
}
/// A lie about one control message.
template <class Change>
tampering lie_about(tp::frame_kind kind, Change change) {
  return [=](byte_vector& f) {
    if (kind_of(f) != kind) return;
    decoded d{frame(f)};
    ASSERT_TRUE(d.outcome);
    change(d.m);
    const frame changed = encode(d.m);
    f.assign(changed.bytes().begin(), changed.bytes().end());
  };
}
/// A lie about the prefix of each chunk.
template <class Change>
tampering lie_about_chunks(Change change) {
  return [=](byte_vector& f) {
    if (kind_of(f) != tp::frame_kind::chunk) return;
    const auto m = tp::detail::payload_prefix::read(std::span<const std::byte, 80>(f.data(), 80));
    ASSERT_TRUE(m);
    tp::frame changed = *m;
    change(changed);
    const std::uint32_t length = changed.length;
    tp::detail::payload_prefix::write(changed, std::span<std::byte, 80>(f.data(), 80));
    f.resize(static_cast<std::size_t>(tp::detail::payload_prefix::frame_bytes(length)));
  };
}

template <class Chunking = tp::fixed_bytes<1024>, class Integrity = tp::image_digest>
using transfer = tp::transfer<tp::land, Chunking, Integrity>;

/// A pull of the right end into this model.
template <class Chunking = tp::fixed_bytes<1024>, class Integrity = tp::image_digest>
tp::result<tp::receipt> pull_into(pair& p, model& mine, const tp::pull_request& request = {{1, 2}}) {
  tp::land to(mine.destination());
  transfer<Chunking, Integrity> t(to, request, {}, p.right.end.next_id());
  return p.pull(t);
}
/// Begins a pull whose connection carries so many of the owner's frames and no more; false: that was enough for it.
template <class Transfer>
bool cut_after(pair& p, Transfer& t, std::uint64_t frames) {
  tp::no_transfer idle;
  std::uint64_t n = 0;
  p.owner_lies = [&](byte_vector& f) {
    if (n++ >= frames) f.clear();
  };
  p.right.end.begin_pull();
  p.run(idle, t, [&] { return t.ended() || n > frames; });
  p.owner_lies = {};
  return !t.ended();
}
/// Goes on with it after the owner was started again and has published the same.
template <class Transfer>
tp::result<tp::receipt> pull_after_restart(pair& p, Transfer& t, const model& source) {
  p.left.restart();
  p.reconnect();
  p.left.publish(source, {1, 2}, 1);
  t.restart();
  return p.pull(t);
}
/// A pair whose left end owns `source`.
struct owning_pair : pair {
  explicit owning_pair(cut every = {}, std::uint32_t recipients = 0) : pair(every) {
    left.publish(source, {1, 2}, recipients);
  }
  const model source = mixed_model().fill(1);
};
/// A pull into a model of its own.
template <class Chunking = tp::fixed_bytes<1024>, class Integrity = tp::image_digest>
struct receiving {
  explicit receiving(const tp::pull_request& request = {{1, 2}}, std::uint32_t first_id = 1)
      : t(to, request, {}, first_id) {}
  model mine = mixed_model();
  tp::land to{mine.destination()};
  transfer<Chunking, Integrity> t;
};

}  // namespace test
