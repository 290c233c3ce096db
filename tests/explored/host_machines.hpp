// An owner of hosts, with two references, and two recipients that pull them over streams or datagrams: their memory,
// which is saved and put back as bytes, and what a world knows of them.
#pragma once

#include "explored/exploration.hpp"
#include "support/words.hpp"

#include <tensorpull/chunking/policies.hpp>
#include <tensorpull/consumers/land.hpp>
#include <tensorpull/framing/word_framing.hpp>
#include <tensorpull/image/dynamic.hpp>
#include <tensorpull/integrity/range_digest.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>
#include <tensorpull/protocol/datagrams/datagram_endpoint.hpp>
#include <tensorpull/protocol/owner/owner.hpp>
#include <tensorpull/protocol/recipient/transfer.hpp>

#include <new>
#include <span>
#include <string_view>
#include <vector>

namespace test::hosts {

/// The hash with the smallest state that can be a version's.
struct tiny_hash {
  static constexpr tp::digest_kind kind = tp::digest_kind::xxh3_64;
  void update(const_byte_span bytes) noexcept {
    for (const std::byte b : bytes) {
      state_ = (state_ ^ static_cast<std::uint64_t>(b)) * 0x9e3779b97f4a7c15;
      state_ ^= state_ >> 29;
    }
  }
  std::uint64_t digest() const noexcept { return state_ | 1; }

 private:
  std::uint64_t state_ = 0x2545f4914f6cdd1d;
};
struct tiny_digest {
  using is_integrity_policy = void;
  static constexpr bool whole = true, per_chunk = false;
  using hash_type = tiny_hash;
};
struct limits : tp::default_limits {
  static constexpr std::size_t control_frame_bytes = 600, page_bytes = 256, application_body_bytes = 0;
  static constexpr std::size_t pipelined_requests = 2, transfers_per_connection = 2, digest_jobs = 1;
  static constexpr std::size_t window = 16;
  static constexpr std::uint64_t subset_bytes_per_second = 20'000, chunk_digest_bytes_per_second = 64;
};
/// Knows who waits for it: `relaxed` is called, as the other threads would run.
struct told_lock {
  void lock() noexcept { wrong = wrong || std::exchange(held_, true); }
  void unlock() noexcept { wrong = wrong || !std::exchange(held_, false); }
  void relax() noexcept { relaxed(); }
  static inline bool wrong = false;
  static inline void (*relaxed)() = nullptr;

 private:
  bool held_ = false;
};
/// Notes what it has taken.
struct noted : tp::land {
  using tp::land::land;
  tp::result<void> begin(const tp::description& d) noexcept {
    version = d.version;
    return tp::land::begin(d);
  }
  tp::result<void> finish(const tp::receipt& r) noexcept {
    finished = r.version;
    return tp::land::finish(r);
  }
  std::uint64_t version = 0, finished = 0;
};

/// Faults, how many of each are still to come.
struct faults {
  std::uint8_t breaks = 0, recipient_restarts = 0, owner_restarts = 0, ticks = 0;
  std::uint8_t same = 0, other = 0, withdrawals = 0, give_ups = 0;
  std::uint8_t splits = 0;  // a part alone of what could be moved
  std::uint8_t strangers = 0;  // frames of a stranger
  std::uint8_t lies_up = 0, lies_down = 0;  // of the first recipient's connection
  // of datagrams
  std::uint8_t losses = 0, doubles = 0, overtakes = 0;
  std::uint8_t early = 0;  // a timer's time passes although datagrams are on their way
  std::uint8_t damages = 0;  // of payload
  std::uint8_t forgets = 0;  // the owner has forgotten a peer
  std::uint8_t moves = 0;  // a recipient goes on over another link
};

enum class counting : std::uint8_t {
  named,
  by_number,
  unknown
};
/// How the owner publishes both references.
struct setting {
  counting counts = counting::named;  // how its two recipients are expected
  bool together = true;  // in one transaction
  bool pinned = false;  // the recipients know the versions
  bool by_name = false;  // they ask for the tensor by its name
  bool second_looks = false;  // the second recipient only looks at what there is
  bool joins = false;  // the second reference joins the transaction of the first later
  std::size_t references = 3, records = 8, buffers = 1;  // room of the owner
  // over datagrams
  std::size_t datagram_bytes = 256;  // the longest
  std::size_t held_bytes = 96;  // memory for chunks that arrive early
};

/// The machines, and what each test of them needs.
class host_machines {
 protected:
  static constexpr std::size_t most_references = 3, most_records = 8;
  using kind = tp::frame_kind;
  using recipient_state = tp::recipient_state;
  using framing = tp::basic_word_framing<limits>;
  using owner = tp::owner<tiny_hash, limits, told_lock>;
  using owner_end = tp::endpoint<framing, limits, owner, tp::ignore_messages>;
  using recipient_end = tp::endpoint<framing, limits, tp::no_owner, tp::ignore_messages>;
  using transfer = tp::transfer<noted, tp::fixed_bytes<32>, tiny_digest, limits>;
  using storage = tp::owner_storage<most_references, most_records>;
  using pool = tp::buffer_pool<told_lock>;

  using owner_datagram_end = tp::datagram_endpoint<framing, limits, owner, tp::ignore_messages>;
  using recipient_datagram_end = tp::datagram_endpoint<framing, limits, tp::no_owner, tp::ignore_messages>;

  static constexpr unsigned most_ends = 5, stranger = 2, none = 255;
  static constexpr std::size_t owner_end_bytes = std::max(sizeof(owner_end), sizeof(owner_datagram_end)),
                               recipient_end_bytes = std::max(sizeof(recipient_end), sizeof(recipient_datagram_end)),
                               transfer_bytes = 2'560, landing_bytes = 512;
  static constexpr std::uint32_t on_the_way = 4;  // datagrams in each direction; the link takes no more
  static constexpr std::size_t data_bytes = 16, header_bytes = 64, image_bytes = header_bytes + data_bytes;
  static constexpr std::size_t late_bytes = 288, plan_bytes = 1024;
  static constexpr unsigned most_transactions = 6;
  static constexpr std::uint32_t acquire_ms = 3'000, idle_ms = 4'000, transaction_idle_ms = 8'000;
  static constexpr std::uint32_t withdrawn_because = 21, cancelled_because = 7;
  static constexpr tp::ref_id refs[] = {{1, 2}, {3, 4}};
  static constexpr tp::recipient_id names[] = {{11}, {12}, {19}};
  static constexpr std::uint64_t shape[] = {data_bytes};
  static constexpr std::string_view tensor_name[] = {"w"};

  host_machines(const setting& s, const faults& f) : setting_(s), allowed_(f) {
    for (unsigned r = 0; r < 2; ++r)
      for (unsigned c = 0; c < 2; ++c)
        for (unsigned k = 0; k < 2; ++k) {
          auto& data = source_[r][c][k];
          for (unsigned i = 0; i < data_bytes; ++i) data[i] = static_cast<std::byte>(1 + 16 * r + 64 * c + i);
          const tp::tensor_view view{"w", dtype::u8, shape, data};
          images_.push_back(std::move(*tp::dynamic_image::make(std::span(&view, 1))));
          if (k != 0) continue;
          tiny_hash h;
          (void)tp::hash_range(h, images_.back().source(), 0, image_bytes);
          version_[r][c] = h.digest();
          tiny_hash of_data;
          of_data.update(data);
          data_digest_[r][c] = of_data.digest();
        }
    for (auto& of : state_.recipients)
      for (auto& data : of.data) {
        const tp::mutable_tensor_view view{"w", dtype::u8, shape, data};
        destinations_.push_back(std::move(*tp::dynamic_image::make(std::span(&view, 1))));
      }
  }
  host_machines(const host_machines&) = delete;

  struct how_it_ended {
    std::uint64_t version;
    std::int32_t system;
    errc code;  // of the error, or of what was not confirmed
    bool over, completed, confirmed;
  };
  struct one_recipient {
    alignas(64) std::byte end_at[(recipient_end_bytes + 63) / 64 * 64];
    alignas(64) std::byte transfer_at[transfer_bytes];
    alignas(64) std::byte landing_at[landing_bytes];  // a noted is the first in it
    std::byte data[2][data_bytes];
    std::byte late[late_bytes];  // sent over the connection before, and not read yet
    std::uint64_t held[2];  // bit c: it has held this content of the reference
    struct request {
      std::uint64_t offset;
      std::uint32_t id, length;
    } asked[4];  // the chunks that its transfer asked for last
    std::uint64_t nonce;  // of the serve that was described to it last
    std::uint64_t landed, total;
    std::uint32_t late_size;
    std::uint32_t begun, begun_for;  // bytes that are left of the frame that it has begun to send, and its owner
    std::uint8_t pulls;  // the reference that it pulls; 2: it is over
    std::uint8_t end, ghost;  // the owner's ends of its connection, and of the one before it
    std::uint8_t tries;
    how_it_ended done[2];
    bool gave_up[2];
    bool lied;  // bytes in its name were others than it has sent
    bool lied_to;
    // over datagrams
    std::uint32_t up[on_the_way], down[on_the_way], ghost_up[on_the_way];  // their numbers, 0: none
    std::uint64_t covered[2];  // a bit for each byte of which a right answer has arrived
    struct range {
      std::uint64_t offset, asked_at;
      std::uint32_t id, length;
      bool answered, over;  // any request for it is; the latest one is not awaited
      bool none[6];
    } ranges[8];  // that it has asked for, the latest request of each
    std::uint32_t located_by;  // the id of the names that were located
    std::uint32_t described_by;  // the id of its request for the description
    std::uint32_t last_pull, latest_answer, confirmed_by;  // ids
    std::uint8_t damages, lives, silent;  // timers that passed since it was answered
    bool described, overtaken, confirmed;  // confirmed: a right answer has told it so
    alignas(64) std::byte pool_at[64];
    std::byte pieces[1'280], early[96];
  };
  struct one_transaction {
    std::uint64_t opened_at, moved_at;
    std::uint8_t of, named;  // bits: references, recipients
    bool there, by_hand, told, open;  // open: references may join it
    recipient_state state[3][2];  // of each recipient of each reference
  };
  struct machines {
    alignas(64) std::byte owner_at[(sizeof(owner) + 63) / 64 * 64];
    alignas(64) std::byte storage_at[(sizeof(storage) + 63) / 64 * 64];
    alignas(64) std::byte pool_at[64];
    alignas(64) std::byte buffer[1'280];
    alignas(64) std::byte ends_at[most_ends][(owner_end_bytes + 63) / 64 * 64];
    one_recipient recipients[2];
    // what the world knows of them
    one_transaction transactions[most_transactions];
    std::uint64_t now;
    std::uint64_t said[3][2][4];  // nonces with which each has confirmed, or lied that it does, the digest of a
                                  // reference
    std::uint64_t payload_at[2];  // when each recipient was given bytes last
    std::uint64_t us;  // the time of datagrams, in microseconds
    std::uint32_t connection[most_ends];  // their numbers at the owner
    std::uint32_t owed[most_ends];  // answers, at most
    std::uint32_t newest[most_ends];  // the id of the last request that was no pull
    std::uint8_t of[most_ends];  // whose they are; none: free
    std::uint32_t ends_made;  // of the owner over datagrams: each has a number of its own
    std::uint8_t stranger_end, owners;
    std::uint8_t content[2], copy[2];  // what is published of each reference
    bool published[2], withdrawn[2], other[2];
    std::uint8_t recorded[2][2];  // bit c: an owner has recorded that a recipient has this content of a reference
    bool settled[2], passed, ended;  // a transaction of the reference has; time has; the owner's program has
    alignas(8) faults left;
    std::byte padding[(8 - sizeof(faults) % 8) % 8];
  };
  static_assert(offsetof(machines, left) % 8 == 0 && sizeof(machines) % 8 == 0);
  static_assert(sizeof(pool) <= 64 && sizeof(transfer) <= transfer_bytes && sizeof(noted) <= landing_bytes);

 public:
  machines& state = state_;
  const char* wrong = nullptr;

  fingerprint print() noexcept { return fingerprint().add_difference(&state, &first_, sizeof state); }
  fingerprint rest_print() noexcept { return fingerprint().add_difference(&state, &first_, offsetof(machines, left)); }

 protected:
  one_recipient& at(unsigned i) noexcept { return state.recipients[i]; }
  owner& own() noexcept { return *std::launder(reinterpret_cast<owner*>(state.owner_at)); }
  pool& buffers() noexcept { return *std::launder(reinterpret_cast<pool*>(state.pool_at)); }
  tp::owner_memory tables() noexcept {
    const tp::owner_memory all = std::launder(reinterpret_cast<storage*>(state.storage_at))->view();
    return {all.slots.first(setting_.references), all.transactions, all.records.first(setting_.records),
            all.buckets.first(setting_.records)};
  }
  owner_end& end(unsigned e) noexcept { return *std::launder(reinterpret_cast<owner_end*>(state.ends_at[e])); }
  recipient_end& rend(unsigned i) noexcept { return *std::launder(reinterpret_cast<recipient_end*>(at(i).end_at)); }
  transfer& tr(unsigned i) noexcept { return *std::launder(reinterpret_cast<transfer*>(at(i).transfer_at)); }
  noted& landing(unsigned i) noexcept { return *std::launder(reinterpret_cast<noted*>(at(i).landing_at)); }

  /// Memory that an object is about to be made in; what it leaves out is 0 in each world.
  template <class At>
  static At& blank(At& at) noexcept {
    std::memset(&at, 0, sizeof at);
    asm volatile("" ::"r"(&at) : "memory");  // else the compiler takes the zeros for unused
    return at;
  }
  /// What calls leave on the stack gets into the padding of what later ones keep: so that is the same in each world.
  [[gnu::noinline]] static void scrub() noexcept {
    std::byte stack[6'144];
    std::memset(stack, 0, sizeof stack);
    asm volatile("" ::"r"(stack) : "memory");
  }
  void must(bool holds, const char* otherwise) noexcept {
    if (!holds && wrong == nullptr) wrong = otherwise;
  }
  static unsigned index_of(const tp::ref_id& ref) noexcept { return ref == refs[0] ? 0 : 1; }
  static unsigned index_of(tp::recipient_id who) noexcept {
    for (unsigned i = 0; i < 3; ++i)
      if (names[i] == who) return i;
    return none;
  }
  /// Bit c: of content c; 0: of none that was published.
  unsigned content_of(unsigned ref, std::uint64_t version) const noexcept {
    if (version == version_[ref][0]) return 1;
    return version == version_[ref][1] ? 2 : 0;
  }

  /// Whether a record is of what is published.
  bool counts(const tp::recipient_record& r) noexcept {
    const tp::publication& p = tables().slots[r.slot];
    return r.who && p.now == tp::publication::state::published && p.generation == r.generation;
  }

  tp::source_view image(unsigned ref) const noexcept {
    return images_[4 * ref + 2 * state_.content[ref] + state_.copy[ref]].source();
  }
  /// Where the data of a pull begins.
  std::uint64_t data_begins() const noexcept { return setting_.by_name ? 0 : header_bytes; }
  /// The digest of what is pulled of a version; 0: there is none.
  std::uint64_t digest_of(unsigned ref, std::uint64_t version) const noexcept {
    const unsigned content = content_of(ref, version);
    if (content == 0) return 0;
    return setting_.by_name ? data_digest_[ref][content - 1] : version;
  }
  std::uint64_t version(unsigned ref) const noexcept { return version_[ref][state_.content[ref]]; }

  alignas(64) machines state_;
  machines first_{};
  setting setting_;
  faults allowed_;
  std::byte source_[2][2][2][data_bytes];  // reference, content, copy
  std::uint64_t version_[2][2], data_digest_[2][2];
  std::vector<tp::dynamic_image> images_, destinations_;
};

}  // namespace test::hosts
