// The owner of a simulation: a process that can crash and start again, its publication, and its end of each connection.
#pragma once

#include <tensorpull/links/pump.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>
#include <tensorpull/protocol/owner/owner.hpp>
#include <tensorpull/satellites/simulation/detail/settlement_oracle.hpp>
#include <tensorpull/satellites/simulation/simulated_stream.hpp>
#include <tensorpull/testing/detail/published_versions.hpp>
#include <tensorpull/testing/guarded_tensors.hpp>
#include <tensorpull/transports/host_budget.hpp>

#include <array>
#include <memory>
#include <vector>

namespace tensorpull::testing::detail {

/// An owner of one reference, whose versions alternate between two models. The one that is no longer published is
/// overwritten at once, so that the oracle finds a late read of it.
template <class Parts, simulated_model Model>
class simulated_owner {
 public:
  using limits = typename Parts::limits;
  using machine_type = owner<typename Parts::owner_hash, limits>;
  using end_type = endpoint<typename Parts::framing, limits, machine_type, ignore_messages>;
  static constexpr ref_id reference{0x7e57, 1};
  static constexpr connection_budgets budgets{std::chrono::milliseconds(700), std::chrono::milliseconds(700),
                                              std::chrono::milliseconds(1500), 64};

  /// The owner's end of one connection. Destroy it before the owner stops.
  struct connection {
    connection(simulated_stream s, simulated_owner& o, std::uint64_t now_us)
        : stream(std::move(s)), end(o.process_->machine, o.process_->pool, o.process_->handler), watch(moment(now_us)) {
      end.doubt();
    }
    simulated_stream stream;
    end_type end;
    tensorpull::detail::budget_watch watch;
    std::uint64_t bytes = 0;  ///< moved in both directions
  };

  simulated_owner(const typename Model::shape& shape, seeded_random random, published_versions& oracle)
      : random_(random), oracle_(oracle), models_{std::make_unique<Model>(shape), std::make_unique<Model>(shape)} {
    models_[0]->fill(random_);
  }

  bool up() const noexcept { return process_ != nullptr; }
  /// `records`: how many recipients it can remember at a time.
  void start(std::uint64_t now_us, std::size_t records) {
    process_ = std::make_unique<process>(random_, records);
    advance(now_us);
    ++starts_;
  }
  std::uint32_t starts() const noexcept { return starts_; }
  void stop() noexcept { process_.reset(); }

  /// Publishes the model as it is now, for the first time or after a restart; gives the version. If the table has no
  /// room for the recipients that are expected, it is published for an unknown number.
  std::uint64_t publish(const expectation& asked, settlement_oracle& settlements) {
    // mutate() may have left other bytes
    mend_booleans(models_[current_]->destination(), models_[current_]->source().schema->data_bytes());
    const source_view image = models_[current_]->source();
    std::uint64_t version = 0;
    if constexpr (Parts::integrity::whole) version = *image_version<typename Parts::owner_hash>(image);
    else
      while (version == 0) version = random_();
    oracle_.add(version, image);
    published_ = mutated_ = false;
    expectation anybody;
    anybody.forgetful = asked.forgetful;
    for (const expectation& e : {asked, anybody}) {
      const transaction_options options = e.options();
      const auto t = process_->machine.open_transaction(options);
      if (!t) continue;
      published_ = process_->machine.publish(image, version, Parts::integrity::whole, reference, *t).has_value();
      if (!published_) {
        process_->machine.cancel(*t);
        continue;
      }
      settlements.published(starts_, current_transaction_ = *t, version, e);
      process_->machine.seal(*t);
      break;
    }
    return version;
  }
  /// Publishes other values under the same reference; gives their version.
  std::uint64_t publish_again(const expectation& asked, settlement_oracle& settlements) {
    current_ = 1 - current_;
    models_[current_]->fill(random_);
    const auto version = publish(asked, settlements);
    models_[1 - current_]->fill(random_);
    return version;
  }
  /// The application has its memory again, and overwrites it.
  void withdraw() {
    if (!process_->machine.withdraw(reference)) return;
    published_ = false;
    models_[current_]->fill(random_);
  }
  void advance(std::uint64_t now_us) noexcept { process_->machine.advance(std::chrono::milliseconds(now_us / 1000)); }
  /// A driver's duty after each step: calls `tell(settlement, ended)` for each settlement, and gives the memory back
  /// to the application. `ended`: whether the settlement is that of what is published now.
  template <class Tell>
  void tell_settlements(Tell tell) {
    settlement s;
    for (callback<const settlement&> nobody; process_->machine.next_settled(s, nobody);) {
      const bool ended = published_ && s.id == current_transaction_;
      if (ended) {
        published_ = false;
        models_[current_]->fill(random_);
      }
      tell(s, ended);
      if (process_->machine.returned(s.id)) process_->machine.released(s.id);
    }
  }
  /// Forges a confirmation of each recipient that was sent everything and has not confirmed.
  void forge() noexcept {
    std::array<recipient_record, process::most_records> all;
    const std::size_t n = process_->machine.recipients_of(reference, all);
    for (const recipient_record& r : std::span(all).first(n)) {
      if (r.state != recipient_state::provisional) continue;
      frame m;
      m.kind = frame_kind::confirm;
      m.ref = reference;
      m.recipient = r.who;
      m.nonce = r.nonce;
      m.digest = r.subset ? r.subset_digest : r.version;
      m.flag = true;
      typename machine_type::peer nobody;
      pending_reply answer;
      (void)process_->machine.handle(nobody, m, answer);
    }
  }
  /// Changes what is published, which a program must not do.
  void mutate() {
    const destination_view d = models_[current_]->destination();
    if (d.schema->data_bytes() == 0) return;
    const std::uint64_t at = random_.below(d.schema->data_bytes());
    const std::size_t i = tensor_at(*d.schema, at);
    d.address(i)[at - d.schema->tensors[i].begin] ^= static_cast<std::byte>(1 + random_.below(255));
    mutated_ = true;
  }
  bool published() const noexcept { return published_; }
  bool mutated() const noexcept { return mutated_; }
  publication_status status() const noexcept {
    return process_->machine.status_of(reference).value_or(publication_status{});
  }

  /// Takes all buffers, as if another part of the process needed them; false gives them back.
  void take_buffers(bool take) noexcept { process_->take(take); }
  /// Whether every buffer is free, nothing is pinned, and no recipient is waited for. Must be true when there is no
  /// connection and nothing is published.
  bool at_rest() const noexcept {
    const owner_memory all = process_->storage.view();
    for (const publication& p : all.slots)
      if (p.pins != 0 || p.now == publication::state::published) return false;
    for (const transaction& t : all.transactions)
      if (t.now != transaction::state::empty && t.now != transaction::state::delivered) return false;
    for (const recipient_record& r : all.records)
      if (r.who && r.generation == all.slots[r.slot].generation && (r.connection != 0 || !is_final(r.state)))
        return false;
    return process_->pool.available() == process::buffers;
  }

  std::unique_ptr<connection> accept(simulated_stream s, std::uint64_t now_us) {
    return std::make_unique<connection>(std::move(s), *this, now_us);
  }

  /// After an error the caller destroys the connection.
  result<pumped> pump(connection& c) noexcept {
    no_transfer none;
    const auto did = pump_once(c.end, none, c.stream, process_->scratch);
    if (did) c.bytes += did->received + did->sent;
    return did;
  }
  /// Whether a connection's budget is over; called by the timer.
  bool tick(connection& c, std::uint64_t now_us) noexcept {
    return c.watch.over(budgets, moment(now_us),
                        {c.bytes, c.end.heard(), c.end.long_frame(), false, !c.end.output_idle() || c.end.mid_frame()});
  }

 private:
  struct process {
    static constexpr std::size_t buffers = 3;
    static constexpr std::size_t buffer_bytes = limits::control_frame_bytes;
    static constexpr std::size_t most_records = 128;

    process(seeded_random& random, std::size_t records)
        : machine(first(storage.view(), records), [&random] { return random(); }),
          memory(buffers * buffer_bytes / 8 + 8),
          pool(std::as_writable_bytes(std::span(memory)).first(buffers * buffer_bytes), buffer_bytes) {}
    ~process() { take(false); }
    /// Takes all free buffers, or gives back what was taken.
    void take(bool all) noexcept {
      if (all) {
        while (std::byte* const b = pool.acquire()) taken[taken_count++] = b;
      } else {
        while (taken_count > 0) pool.release(taken[--taken_count]);
      }
    }
    static owner_memory first(owner_memory m, std::size_t records) noexcept {
      m.records = m.records.first(std::min(records, most_records));
      return m;
    }

    owner_storage<2, most_records> storage;
    machine_type machine;
    std::vector<std::uint64_t> memory;
    buffer_pool<> pool;
    ignore_messages handler;
    std::array<std::byte*, buffers> taken{};
    std::size_t taken_count = 0;
    alignas(64) std::array<std::byte, 8 * 1024> scratch;
  };
  /// Virtual time as a driver's clock; never 0, which would mean that the clock was not read yet.
  static std::chrono::steady_clock::time_point moment(std::uint64_t us) noexcept {
    return std::chrono::steady_clock::time_point(std::chrono::hours(1) + std::chrono::microseconds(us));
  }

  seeded_random random_;
  published_versions& oracle_;
  std::array<std::unique_ptr<Model>, 2> models_;
  std::unique_ptr<process> process_;
  transaction_id current_transaction_{};
  std::size_t current_ = 0;
  std::uint32_t starts_ = 0;
  bool published_ = false, mutated_ = false;
};

}  // namespace tensorpull::testing::detail
