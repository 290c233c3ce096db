// The owner of a simulation: a process that can die and come back, what it publishes, and its end of each connection.
#pragma once

#include <tensorpull/protocol/endpoint.hpp>
#include <tensorpull/testing/guarded_tensors.hpp>
#include <tensorpull/testing/published_versions.hpp>
#include <tensorpull/testing/simulated_stream.hpp>
#include <tensorpull/transports/host_budget.hpp>
#include <tensorpull/transports/pump.hpp>

#include <array>
#include <memory>
#include <optional>
#include <vector>

namespace tensorpull::testing {

struct deaf {
  static constexpr bool ready() noexcept { return true; }
  static constexpr void on_application(const message&) noexcept {}
};

/// One reference, whose versions alternate between two models; the one that is not published any more is overwritten at once, so that a late
/// read of it is seen by the oracle.
template <class Parts, simulated_model Model>
class simulated_owner {
 public:
  using limits = typename Parts::limits;
  using machine_type = owner<typename Parts::owner_hash, limits>;
  using end_type = endpoint<typename Parts::framing, limits, machine_type, deaf>;
  static constexpr ref_id reference{0x7e57, 1};
  static constexpr connection_budgets budgets{std::chrono::milliseconds(700), std::chrono::milliseconds(700), std::chrono::milliseconds(1500), 64};

  /// The owner's end of one connection. Destroy it before the owner stops.
  struct connection {
    connection(simulated_stream s, simulated_owner& o, std::uint64_t now_us) : stream(std::move(s)), end(o.process_->machine, o.process_->pool, o.process_->handler), watch(time(now_us)) {}
    simulated_stream stream;
    end_type end;
    detail::budget_watch watch;
    std::uint64_t bytes = 0;
    bool greeted = false;
  };

  simulated_owner(const typename Model::shape& shape, seeded_random random, published_versions& oracle)
      : random_(random), oracle_(oracle), models_{std::make_unique<Model>(shape), std::make_unique<Model>(shape)} {
    models_[0]->fill(random_);
  }

  bool up() const noexcept { return process_ != nullptr; }
  void start() { process_ = std::make_unique<process>(random_); }
  void stop() noexcept { process_.reset(); }

  /// Publishes the model as it is now: after a restart, or for the first time.
  std::uint64_t publish() {
    const source_view image = models_[current_]->source();
    std::uint64_t version = 0;
    if constexpr (Parts::integrity::whole) version = image_version<typename Parts::owner_hash>(image);
    else while (version == 0) version = random_();
    oracle_.add(version, image);
    published_ = process_->machine.publish(image, version, Parts::integrity::whole, reference, 0).has_value();
    settle();
    mutated_ = false;
    return version;
  }
  /// Other values under the same reference.
  std::uint64_t publish_again() {
    current_ = 1 - current_;
    models_[current_]->fill(random_);
    const auto version = publish();
    models_[1 - current_]->fill(random_);
    return version;
  }
  /// The memory is the application's again, and it uses it.
  void withdraw() {
    if (!process_->machine.withdraw(reference)) return;
    settle();
    published_ = false;
    models_[current_]->fill(random_);
  }
  /// Breaks the promise that what is published does not change.
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
  publication_status status() const noexcept { return process_->machine.status_of(reference).value_or(publication_status{}); }

  /// Somebody else in the process needs all buffers; false gives them back.
  void take_buffers(bool take) noexcept {
    process_->take(take);
  }
  /// Every buffer is free and nothing is pinned: true when no connection is left.
  bool at_rest() const noexcept {
    for (const publication& p : process_->storage.view().slots)
      if (p.pins != 0) return false;
    return process_->pool.available() == process::buffers;
  }

  std::unique_ptr<connection> accept(simulated_stream s, std::uint64_t now_us) { return std::make_unique<connection>(std::move(s), *this, now_us); }

  /// An error: the connection is to be destroyed.
  result<detail::pumped> pump(connection& c) noexcept {
    no_transfer none;
    const auto did = detail::pump_once(c.end, none, c.stream, process_->scratch);
    if (did) c.bytes += did->received + did->sent, c.greeted |= did->received > 0;
    return did;
  }
  /// The clock's tick for one connection: whether its time is over. What the machine itself will want to know of the time belongs here.
  bool tick(connection& c, std::uint64_t now_us) noexcept {
    return c.watch.over(budgets, time(now_us), c.bytes, !c.end.output_idle() || c.end.mid_frame(), c.greeted);
  }

 private:
  /// What a driver does after each step: nobody waits for what has settled.
  void settle() noexcept {
    settlement s;
    for (callback<const settlement&> nobody; process_->machine.next_settled(s, nobody);) {
    }
  }

  struct process {
    static constexpr std::size_t buffers = 3;
    static constexpr std::size_t buffer_bytes = limits::control_frame_bytes;

    explicit process(seeded_random& random) : machine(storage, [&random] { return random(); }), memory(buffers * buffer_bytes / 8 + 8), pool(std::as_writable_bytes(std::span(memory)).first(buffers * buffer_bytes), buffer_bytes) {}
    ~process() { take(false); }
    void take(bool all) noexcept {
      if (all) while (std::byte* const b = pool.acquire()) taken[count++] = b;
      else while (count > 0) pool.release(taken[--count]);
    }

    owner_storage<2, 128> storage;
    machine_type machine;
    std::vector<std::uint64_t> memory;
    buffer_pool<> pool;
    deaf handler;
    std::array<std::byte*, buffers> taken{};
    std::size_t count = 0;
    alignas(64) std::array<std::byte, 8 * 1024> scratch;
  };
  static std::chrono::steady_clock::time_point time(std::uint64_t us) noexcept {
    return std::chrono::steady_clock::time_point(std::chrono::hours(1) + std::chrono::microseconds(us));
  }

  seeded_random random_;
  published_versions& oracle_;
  std::array<std::unique_ptr<Model>, 2> models_;
  std::unique_ptr<process> process_;
  std::size_t current_ = 0;
  bool published_ = false, mutated_ = false;
};

}  // namespace tensorpull::testing
