// A recipient of a simulation: a process that can crash and start again. It has one destination, one connection at a
// time and one transfer, which it keeps after a lost connection, a time-out or a busy owner, as
// transports/blocking/stream_pull.hpp does.
#pragma once

#include <tensorpull/protocol/connection/endpoint.hpp>
#include <tensorpull/protocol/recipient/transfer.hpp>
#include <tensorpull/protocol/retry.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/satellites/simulation/detail/observed_consumer.hpp>
#include <tensorpull/satellites/simulation/detail/simulated_owner.hpp>
#include <tensorpull/satellites/simulation/simulated_stream.hpp>
#include <tensorpull/testing/guarded_tensors.hpp>
#include <tensorpull/transports/blocking/stream_pull.hpp>

#include <memory>
#include <optional>

namespace tensorpull::testing::detail {

/// `Judge` is called when a consumer has finished; see observed_consumer.
template <class Parts, consumer Consumer, simulated_model Model, class Judge>
class simulated_recipient {
 public:
  using limits = typename Parts::limits;
  using observed = observed_consumer<Consumer, Judge>;
  using transfer_type = transfer<observed, typename Parts::chunking, typename Parts::integrity, limits>;

  simulated_recipient(const typename Model::shape& shape, const virtual_clock& clock, std::chrono::microseconds timeout)
      : shape_(&shape), clock_(&clock), timeout_us_(static_cast<std::uint64_t>(timeout.count())) {}

  /// Starts a process with a new destination, or with the one that stop_and_keep() kept. `parts`: bit i for tensor i;
  /// with all bits, or if the model cannot have parts, the whole.
  void start(std::uint32_t parts) {
    if ((model_ = std::move(kept_)) != nullptr) return;
    cursor_ = {};
    part_ = false;
    if constexpr (requires {
                    model_->names();
                    Model(*shape_, parts);
                  }) {
      part_ = parts != ~0u;
      model_ = std::make_unique<Model>(*shape_, parts);
    } else {
      model_ = std::make_unique<Model>(*shape_);
    }
  }
  /// Whether it pulls some of the tensors by name.
  bool part() const noexcept { return part_; }
  /// The process crashes and loses its memory and its connection. The system may tell the peer.
  void stop() noexcept {
    suspended_ = false;
    attempt_.reset();
    connection_.reset();
    model_.reset();
  }
  /// The process crashes, but its destination survives (a file, or memory of another process), so that a new process
  /// can continue from a cursor. `edit` other than 0: one byte of what had landed is changed. False: there is nothing
  /// to continue from, and everything is lost.
  bool stop_and_keep(std::uint64_t edit) noexcept {
    cursor_ = attempt_ && !attempt_->t.ended() ? attempt_->t.cursor() : resume_cursor{};
    edited_ = false;
    if (cursor_) kept_ = std::move(model_);
    stop();
    if (!kept_) return false;
    const destination_view d = kept_->destination();
    const std::uint64_t header = d.schema->header_bytes;
    if (edit == 0 || cursor_.offset <= header) return true;
    const std::uint64_t at = edit % (cursor_.offset - header);
    const std::size_t i = tensor_at(*d.schema, at);
    d.address(i)[at - d.schema->tensors[i].begin] ^= std::byte{1};
    edited_ = true;
    return true;
  }
  bool up() const noexcept { return model_ != nullptr; }
  Model& model() noexcept { return *model_; }

  void connect(simulated_stream s, std::uint32_t id) {
    connection_ = std::make_unique<connection>(std::move(s));
    connection_id_ = id;
  }
  void disconnect() noexcept { connection_.reset(); }
  bool suspended() const noexcept { return suspended_; }
  bool connected() const noexcept { return connection_ != nullptr; }
  bool connected(std::uint32_t id) const noexcept { return connection_ != nullptr && connection_id_ == id; }
  std::uint32_t connection_id() const noexcept { return connection_id_; }

  /// False: it continued from memory that was changed, which the cursor's digest must detect.
  bool begin(pull_request request, typename Parts::chunking cut, Judge judge, seeded_random random,
             const slowness& slow, const retry_policy& retry) {
    if constexpr (requires { model_->names(); })
      if (part_) request.subset = model_->names();
    attempt_ = std::make_unique<attempt>(model_->destination(), judge, *clock_, random, slow, request, cut,
                                         connection_->end.next_id());
    const resume_cursor from = std::exchange(cursor_, {});
    resumed_ = from && attempt_->t.resume(from);
    if (resumed_) attempt_->to.resumed(attempt_->t.landed_bytes());
    connection_->end.begin_pull();
    step_bytes_ = tensorpull::detail::chunk_length_of(cut) / 64 + 1;
    watch();
    attempt_->tries.emplace(retry, std::chrono::milliseconds(static_cast<std::int64_t>(3 * timeout_us_ / 1000)),
                            landed_);
    return !(resumed_ && std::exchange(edited_, false));
  }
  /// Whether the last transfer continued from a cursor.
  bool resumed() const noexcept { return resumed_; }

  /// The error that the transfer has met, if another try may get past it; then nothing until the next one.
  std::optional<error> obstacle() noexcept { return std::exchange(obstacle_, std::nullopt); }
  /// How many milliseconds to wait before another try; nothing if the transfer has ended.
  std::optional<std::uint64_t> try_again(const error& why, std::uint64_t random) noexcept {
    attempt& a = *attempt_;
    const auto wait = a.tries->after(why.code, a.t.landed_bytes(), a.t.pause(), random);
    if (!wait) {
      a.t.fail(why);
      return std::nullopt;
    }
    return static_cast<std::uint64_t>(wait->count());
  }
  /// Called after the delay: the transfer continues, on the same connection or on another one.
  void go_on() noexcept {
    suspended_ = false;
    attempt_->t.restart();
    connection_->end.begin_pull();
    watch();
  }
  bool pulling() const noexcept { return attempt_ != nullptr; }
  bool ended() const noexcept { return attempt_ != nullptr && attempt_->t.ended(); }
  const transfer_type& current() const noexcept { return attempt_->t; }
  const observed& consumer_of_current() const noexcept { return attempt_->to; }
  /// When a consumer that has no memory now will have some again.
  std::uint64_t busy_until() const noexcept { return attempt_ ? attempt_->to.busy_until() : 0; }

  /// Reads and writes once.
  pumped pump() noexcept {
    no_transfer none;
    const auto did = attempt_ && !suspended_
                         ? pump_once(connection_->end, attempt_->t, connection_->stream, std::span<std::byte>())
                         : pump_once(connection_->end, none, connection_->stream, std::span<std::byte>());
    if (!did) {
      lost(did.error());
      return {};
    }
    if (active() && attempt_->t.pause().count() > 0) suspend({errc::busy});
    if (active() && (attempt_->t.landed_bytes() >= landed_ + step_bytes_ || attempt_->t.answers() != answers_)) {
      landed_ = attempt_->t.landed_bytes();
      answers_ = attempt_->t.answers();
      progress_at_ = clock_->now();
    }
    return *did;
  }
  /// Suspends the transfer if a request's time is over; called by the timer.
  void tick() noexcept {
    if (active() && clock_->now() - progress_at_ >= timeout_us_) suspend({errc::timed_out});
  }
  /// Destroys a transfer that has ended, and tells the owner if there is a connection. The connection stays.
  void end() noexcept {
    if (connection_) {
      if (!suspended_) connection_->end.end_pull(attempt_->t);
      if (const auto bye = attempt_->t.farewell()) (void)connection_->end.send_control(*bye);
    }
    suspended_ = false;
    attempt_.reset();
  }

 private:
  struct connection {
    explicit connection(simulated_stream s) : stream(std::move(s)) {}
    simulated_stream stream;
    alignas(8) std::array<std::byte, limits::page_bytes> memory;
    buffer_pool<> pool{memory, memory.size()};
    ignore_messages handler;
    no_owner none;
    endpoint<typename Parts::framing, limits, no_owner, ignore_messages> end{none, pool, handler};
  };
  struct attempt {
    attempt(const destination_view& d, Judge judge, const virtual_clock& clock, seeded_random random,
            const slowness& slow, const pull_request& request, typename Parts::chunking cut, std::uint32_t first_id)
        : to(d, judge, clock, random, slow), t(to, request, cut, first_id) {}
    observed to;
    transfer_type t;
    std::optional<retry_state> tries;
  };

  bool active() const noexcept { return attempt_ != nullptr && !suspended_ && !attempt_->t.ended(); }
  void watch() noexcept {
    progress_at_ = clock_->now();
    landed_ = attempt_->t.landed_bytes();
    answers_ = attempt_->t.answers();
  }
  void lost(const error& e) noexcept {
    if (active() && is_passing(e.code)) suspend(e);
    else if (active()) attempt_->t.fail(e);
    connection_.reset();
  }
  void suspend(const error& why) noexcept {
    connection_->end.end_pull(attempt_->t);
    suspended_ = true;
    obstacle_ = why;
  }

  const typename Model::shape* shape_;
  const virtual_clock* clock_;
  std::unique_ptr<Model> model_, kept_;
  resume_cursor cursor_{};
  std::optional<error> obstacle_;
  std::unique_ptr<connection> connection_;
  std::unique_ptr<attempt> attempt_;
  std::uint64_t timeout_us_, progress_at_ = 0, step_bytes_ = 1, landed_ = 0;
  std::uint32_t answers_ = 0, connection_id_ = 0;
  bool part_ = false, suspended_ = false, resumed_ = false, edited_ = false;
};

}  // namespace tensorpull::testing::detail
