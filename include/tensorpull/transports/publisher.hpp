// Publishes models: adds slots, kept models and digests to the owner's state machine. Every driver that owns (host, session, loopback) has one.
#pragma once

#include <tensorpull/protocol/owner/owner.hpp>
#include <tensorpull/protocol/owner/transaction.hpp>
#include <tensorpull/std/any.hpp>
#include <tensorpull/std/chrono.hpp>
#include <tensorpull/system/entropy.hpp>

#include <array>
#include <concepts>
#include <type_traits>
#include <utility>

namespace tensorpull {

namespace detail {

/// How many callbacks of publishers this thread is inside of.
inline thread_local std::uint32_t callbacks_entered = 0;

/// Marks the thread as inside a callback until the end of the scope.
struct [[nodiscard]] callback_scope {
  callback_scope() noexcept { ++callbacks_entered; }
  callback_scope(const callback_scope&) = delete;
  callback_scope& operator=(const callback_scope&) = delete;
  ~callback_scope() { --callbacks_entered; }
};

}  // namespace detail

/// `Parts`: a pipeline's resolved policies (detail/policy_slots.hpp). `Lock`: the owner's. `Recipients`: how many recipients it remembers at a time.
/// `References`: how many references it publishes at a time.
/// Not movable, because connections point to it.
template <class Parts, class Lock = no_lock, std::size_t Recipients = 64, std::size_t References = Parts::limits::references>
class publisher {
 public:
  /// The state machine behind it.
  using owner_type = owner<typename Parts::owner_hash, typename Parts::limits, Lock, typename Parts::owner_chunk_hash>;
  using tensors = typename Parts::tensors;          ///< the pipeline's tensor policy
  using model_type = typename tensors::model_type;  ///< what is published

  /// Allocates nothing.
  publisher() noexcept : owner_(memory_, system_entropy{}) {}
  publisher(const publisher&) = delete;
  publisher& operator=(const publisher&) = delete;
  /// Settles what has not settled, with what there was, tells it, and releases the models. The connections that used it are gone by then.
  ~publisher() {
    owner_.withdraw_all();
    deliver();
  }

  /// Publishes a model that the caller keeps: it must not change until it is settled or withdrawn.
  /// Cost: one pass over the bytes for the digest (none if the integrity policy has no digest of the whole). Bytes that are not in memory are read
  /// through a slice on the stack of four times the limits' control_frame_bytes, at most 16 KiB.
  /// Errors: table_full; what the tensor policy finds (unsupported_layout, ...).
  result<reference> add_tensors(const model_type& model, publish_options options = {}) noexcept { return publish(tensors::source(model), options, {}); }
  /// Publishes a model that is handed over (`add_tensors(std::move(model))`): it is kept, and released when the reference is settled or
  /// withdrawn. One more error: out_of_memory.
  template <class Model>
    requires(std::is_same_v<Model, model_type>)
  result<reference> add_tensors(Model&& model, publish_options options = {}) {
    unique_any keep;
    const auto* const kept = keep.keep(std::forward<Model>(model));
    if (kept == nullptr) return failure(errc::out_of_memory);
    return publish(tensors::source(*kept), options, std::move(keep));
  }
  /// The same for a pointer that owns a model (std::shared_ptr, std::unique_ptr, model_ptr).
  template <class Pointer>
    requires(!std::is_pointer_v<Pointer> && requires(const Pointer& p) { { *p } -> std::convertible_to<const model_type&>; })
  result<reference> add_tensors(Pointer pointer, publish_options options = {}) {
    const model_type& model = *pointer;
    unique_any keep;
    if (keep.keep(std::move(pointer)) == nullptr) return failure(errc::out_of_memory);
    return publish(tensors::source(model), options, std::move(keep));
  }
  /// Refuses a constant temporary, which can be neither kept nor borrowed.
  template <class Model>
    requires(std::is_same_v<Model, const model_type>)
  result<reference> add_tensors(Model&&, publish_options = {}) noexcept {
    static_assert(!std::is_const_v<Model>,
                  "tensorpull: add_tensors was given a constant temporary, which can be neither kept (it is constant) nor borrowed (it is a temporary): "
                  "give the model a name, or drop the const");
    return failure(errc::withdrawn);
  }
  /// Publishes any image. The caller keeps the memory behind the view. Cost and errors: as add_tensors.
  result<reference> add_image(const source_view& image, publish_options options = {}) noexcept { return publish(image, options, {}); }
  /// The same, and `keep` (its table, its model, or both) is released when the reference is settled or withdrawn.
  result<reference> add_image(const source_view& image, publish_options options, unique_any keep) noexcept { return publish(image, options, std::move(keep)); }

  /// Opens a transaction for references that settle together: publish each with `{.transaction = id}`, then seal it. Error: table_full.
  result<transaction_id> open_transaction(const transaction_options& options) noexcept {
    catch_up();
    return owner_.open_transaction(options);
  }
  /// No more references are added to the transaction, so it may settle.
  void seal(transaction_id id) noexcept { owner_.seal(id); }

  /// Ends a publication: recipients are told `withdrawn` with `reason`, a number of the application's, in the answers to requests in flight and to later
  /// ones. Waits for other threads that are reading the model; when it returns, nothing reads it any more. If its transaction has settled now, it has been told, callbacks of it that were running on other threads have returned, none will run, and
  /// what was kept for it is released. (If other references of the transaction are published, callbacks go on for those.) From within a callback of
  /// any publisher it does not wait for callbacks, so two of them that withdraw each other's references do not wait for each other; none begins
  /// afterwards; what was kept is released when the last one returns. Do not hold a lock that a callback waits for.
  /// Errors: unknown_reference; busy: called from within the reading of this model.
  result<void> withdraw(const reference& ref, std::uint32_t reason = 0) noexcept {
    const auto of = owner_.withdraw(ref.id, reason);
    if (!of) return failure(of.error());
    const bool inside = detail::callbacks_entered != 0;
    for (;;) {
      report();
      deliver(inside ? *of : transaction_id{});
      if (!owner_.calls(*of, !inside)) return {};
      lock_.relax();  // another thread is in a callback of it, or sends the last bytes of another of its images
    }
  }

  /// How many of its recipients have it, have failed, and so on. Error: unknown_reference.
  result<publication_status> status_of(const reference& ref) const noexcept { return owner_.status_of(ref.id); }
  /// Whether its transaction has settled, nothing reads the model any more, its callbacks have returned and what was kept is released. Within a callback:
  /// without the last two. True for an unknown reference: nothing is left of it.
  bool settled(const reference& ref) const noexcept {
    return owner_.settled(ref.id) && (detail::callbacks_entered != 0 || !owner_.calls(owner_.transaction_of(ref.id), true));
  }
  /// How its transaction ended; `open` while it has not. Error: unknown_reference.
  result<settlement> settlement_of(const reference& ref) noexcept { return owner_.settlement_of(ref.id); }
  /// How one recipient stands. unknown_reference: nothing is remembered of it.
  result<recipient_record> recipient_of(const reference& ref, recipient_id who) noexcept { return owner_.recipient_of(ref.id, who); }
  /// Copies the recipients of the reference's transaction into `out`, as many as fit; the number copied.
  std::size_t recipients_of(const reference& ref, std::span<recipient_record> out) noexcept { return owner_.recipients_of(ref.id, out); }
  /// How many callbacks of transactions have thrown. What they threw is dropped.
  std::uint64_t callback_failures() const noexcept {
    const lock_guard hold(lock_);
    return callback_failures_;
  }

  /// Reads the clock for the budgets and reports progress, then calls deliver(). Drivers call it several times a second.
  void tick() noexcept {
    catch_up();
    report();
    deliver();
  }
  /// Calls back for each transaction that has settled, then releases the models that were handed over for it. Drivers call it after each step. A
  /// settlement is told after the progress of its transaction: by the thread whose callback returns last.
  void deliver() noexcept { deliver({}); }

  /// The state machine, for a driver's connections.
  owner_type& machine() noexcept { return owner_; }

 private:
  struct kept_model {
    transaction_id transaction{};
    unique_any source;
  };

  /// A budget starts when something is published, even if no driver has called tick() for a while.
  void catch_up() noexcept {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    owner_.advance(std::chrono::duration_cast<std::chrono::milliseconds>(now));
  }
  void report() noexcept {
    progress_event e;
    callback<const progress_event&> tell;
    while (const transaction_id t = owner_.next_event(e, tell)) contain(tell, e), returned(t);
  }
  /// `at_once`: this one is told even while other callbacks of it run.
  void deliver(transaction_id at_once) noexcept {
    while (owner_.settling(at_once)) {
      report();
      settlement s;
      callback<const settlement&> tell;
      const transaction_id t = owner_.next_settled(s, tell, at_once);
      if (!t) continue;  // another thread was faster, or something more has happened
      if (tell) contain(tell, s);
      returned(t);
    }
  }
  void returned(transaction_id t) noexcept {
    if (!owner_.returned(t)) return;
    release(t);
    owner_.released(t);
  }
  template <class Call, class Value>
  void contain(const Call& call, const Value& value) noexcept {
    const detail::callback_scope here;
#if defined(__cpp_exceptions)
    try {
      call(value);
    } catch (...) {
      const lock_guard hold(lock_);
      ++callback_failures_;
    }
#else
    call(value);
#endif
  }

  result<reference> publish(const source_view& image, const publish_options& options, unique_any keep) noexcept {
    const system_entropy random;
    std::uint64_t version = 0;
    if constexpr (Parts::integrity::whole) {
      const auto computed = image_version<typename Parts::owner_hash, digest_slice>(image);
      if (!computed) return failure(computed.error());
      version = *computed;
    } else
      while (version == 0) version = random();
    ref_id id = options.id;
    while (!id) id = {random(), random()};
    const auto t = options.transaction ? result<transaction_id>(options.transaction) : open_transaction(options.alone());
    if (!t) return failure(t.error());
    kept_model* const kept = keep ? put_away(*t, keep) : nullptr;  // before a recipient can settle it
    const auto done = keep ? result<ref_id>(failure(errc::table_full, kept_.size())) : owner_.publish(image, version, Parts::integrity::whole, id, *t);
    if (!done) {
      if (kept != nullptr) take_back(*kept, keep);
      if (!options.transaction) owner_.cancel(*t);
      return failure(done.error());
    }
    if (!options.transaction) owner_.seal(*t);
    deliver();  // publishing may have replaced another version
    return reference{id, version, image.schema->fingerprint};
  }
  /// Keeps a model. Without room: nullptr, and `keep` is unchanged.
  kept_model* put_away(transaction_id id, unique_any& keep) noexcept {
    const lock_guard hold(lock_);
    for (auto& k : kept_)
      if (!k.source) return k = {id, std::move(keep)}, &k;
    return nullptr;
  }
  void take_back(kept_model& k, unique_any& keep) noexcept {
    const lock_guard hold(lock_);
    keep = std::move(k.source);
  }
  void release(transaction_id id) noexcept {
    const detail::callback_scope here;  // a model's destructor may withdraw, too
    for (auto& k : kept_) {
      unique_any gone;  // destroyed without the lock: a model's destructor is the application's
      const lock_guard hold(lock_);
      if (k.source && k.transaction == id) gone = std::move(k.source);
    }
  }

  // larger than the 4 KiB of a device, because a file is read faster so; limits for small machines make it smaller
  static constexpr std::size_t digest_slice = Parts::limits::control_frame_bytes < 4096 ? 4 * Parts::limits::control_frame_bytes : 16 * 1024;

  owner_storage<References, Recipients> memory_;
  std::array<kept_model, 2 * References> kept_{};  // a version and the one before, which is kept until its settlement is delivered
  owner_type owner_;
  std::uint64_t callback_failures_ = 0;
  [[no_unique_address]] mutable Lock lock_{};  // guards kept_ and the count
};

}  // namespace tensorpull
