// Publishes images and models: adds slots, kept models and digests to the owner's state machine. Every driver that owns
// (host, session, loopback) has one.
#pragma once

#include <tensorpull/integrity/tensor_digests.hpp>
#include <tensorpull/protocol/owner/access.hpp>
#include <tensorpull/protocol/owner/owner.hpp>
#include <tensorpull/protocol/owner/transaction.hpp>
#include <tensorpull/std/any.hpp>
#include <tensorpull/std/chrono.hpp>
#include <tensorpull/system/entropy.hpp>
#include <tensorpull/transports/adding_tensors.hpp>
#include <tensorpull/transports/detail/publisher_room.hpp>
#include <tensorpull/transports/owner_parts.hpp>

#include <type_traits>
#include <utility>

namespace tensorpull {

/// Publishes images. `Parts`: owner_parts. `Lock`: the owner's. `Recipients`: how many recipients it remembers at a
/// time. `References`: how many references it publishes at a time. Not movable, because connections point to it.
template <class Parts, class Lock = no_lock, std::size_t Recipients = 64,
          std::size_t References = Parts::limits::references>
class image_publisher {
 public:
  /// The state machine behind it.
  using owner_type = typename detail::owner_over<
      typename Parts::transport,
      owner<typename Parts::owner_hash, typename Parts::limits, Lock, typename Parts::owner_chunk_hash>>::type;

  /// Allocates nothing, unless the limits say that its room is elsewhere (protocol/owner/owner_room.hpp): then
  /// has_room() has to be asked.
  explicit image_publisher(const owner_room_size& wanted = {}) noexcept
      : room_(wanted), owner_(room_.memory, system_entropy{}), has_room_(room_.has(wanted)) {}
  image_publisher(const image_publisher&) = delete;
  image_publisher& operator=(const image_publisher&) = delete;
  /// Settles what has not settled, with what there was, tells it, and releases the models. The connections that used it
  /// are gone by then.
  ~image_publisher() {
    owner_.withdraw_all();
    deliver();
  }

  /// Publishes an image. The memory behind the view is the caller's, and must not change until it is settled or
  /// withdrawn; or that of `keep` (a table, a model, or both), which is released when the transaction has settled and
  /// that has been told. Withdrawing a reference on its own settles it; what is kept for one of several stays until the
  /// others are over, too.
  /// Cost: one pass over the bytes for the digest (none if the integrity policy has no digest of the whole). Bytes that
  /// are not in memory are read through a slice on the stack of four times the limits' control_frame_bytes, at most 16
  /// KiB.
  /// Errors: table_full.
  result<reference> add_image(const source_view& image, const publish_options& options = {},
                              unique_any keep = {}) noexcept {
    return publish(image, options, std::move(keep));
  }
  /// Gives recipients the memory of a publication, if the transport shares memory.
  template <class Region>
  void share(const reference& ref, const source_view& image, const Region& region) noexcept
    requires requires(owner_type& o) { o.share(ref, image, region); }
  {
    owner_.share(ref, image, region);
  }

  /// Publishes images in a transaction of their own: all, or none. An error leaves everything as it was: what is
  /// published under an ID that is given is replaced only if all of them can be published, and no recipient sees some
  /// of them alone. An ID that is 0 is drawn; IDs, versions and fingerprints are written to `images`. `keep` is
  /// released when the transaction has settled. Cost: as add_tensors for each. Errors: of the digests (`at`: the index
  /// of the image; cancelled: by `stop`, meanwhile); those of open_transaction() and owner::publish_all(); table_full:
  /// there is no room for `keep`.
  template <class Images>
  result<transaction_id> add_images(Images&& images, const transaction_options& options, unique_any keep = {},
                                    const stop_token& stop = {}) noexcept {
    const system_entropy random;
    for (std::size_t i = 0; i < images.size(); ++i) {
      transaction_image& x = images[i];
      const auto version = version_of(x.image, stop);
      if (!version) {
        error why = version.error();
        why.at = i;
        return failure(why);
      }
      x.as.version = *version;
      while (!x.as.id) x.as.id = {random(), random()};
      x.as.fingerprint = x.image.schema->fingerprint;
    }
    const auto t = open_transaction(options);
    if (!t) return t;
    kept_model* const kept = keep ? put_away(*t, keep) : nullptr;  // before a recipient can settle it
    const auto done = keep ? result<void>(failure(errc::table_full, room_.kept.size()))
                           : owner_.publish_all(images, Parts::verifiable, *t, [this]() noexcept { return report(); });
    if (!done) {
      take_back(kept, keep);
      owner_.cancel(*t);
      return failure(done.error());
    }
    owner_.seal(*t);
    deliver();  // they may have replaced others
    return t;
  }

  /// Opens a transaction for references that settle together: publish each with `{.transaction = id}`, then seal it.
  /// Error: table_full.
  result<transaction_id> open_transaction(const transaction_options& options) noexcept {
    catch_up();
    return owner_.open_transaction(options);
  }
  /// No more references are added to the transaction, so it may settle.
  void seal(transaction_id id) noexcept { owner_.seal(id); }

  /// Ends a publication. A reference with a version means only that one, here and in the calls below: its successor
  /// under the same ID goes on. Recipients are told `withdrawn` with `reason`, a number of the application's, in the
  /// answers to requests in flight and to later ones. Waits for other threads that are reading the model; when it
  /// returns, nothing reads it any more. If its transaction has settled now, it has been told, callbacks of it that
  /// were running on other threads have returned, none will run, and what was kept for it is released. (If other
  /// references of the transaction are published, callbacks go on for those.) From within a callback of any publisher
  /// it does not wait for callbacks, so two of them that withdraw each other's references do not wait for each other;
  /// none begins afterwards; what was kept is released when the last one returns. Do not hold a lock that a callback
  /// waits for. With one thread it does not wait for the reading of another image of the transaction either, since that
  /// is its caller's: then the end is told afterwards. Errors: unknown_reference; busy: called from within the reading
  /// of this model.
  result<void> withdraw(const reference& ref, std::uint32_t reason = 0) noexcept {
    return ended(owner_.withdraw(ref, reason));
  }
  /// The same if another owner coordinates the transaction and is gone: it ends as verdict::owner_lost.
  result<void> lose(const reference& ref) noexcept { return ended(owner_.lose(ref)); }

  /// Sets the program's callback that decides what each peer may have. It is asked before anything about a reference is
  /// told, also about references that nobody knows. A peer that may not have it hears the same as of an unknown
  /// reference. If the callback throws, the answer is no, and counts as a callback failure. It may be asked on each
  /// thread that runs connections, and may call whatever a callback may. Call this before there are connections.
  /// See owner::authorise for when it is asked again.
  void authorise(const authorise_callback& may) noexcept {
    may_ = may;
    owner_.authorise([this](const access_request& r) noexcept {
      bool agreed = false;
      contain([&](const access_request& asked) { agreed = may_(asked); }, r);
      return agreed;
    });
  }

  /// How many of its recipients have it, have failed, and so on. Error: unknown_reference.
  result<publication_status> status_of(const reference& ref) const noexcept { return owner_.status_of(ref); }
  /// Whether its transaction has settled, nothing reads the model any more, its callbacks have returned and what was
  /// kept is released. Within a callback: without the last two. True for an unknown reference: nothing is left of it.
  bool settled(const reference& ref) const noexcept {
    return owner_.settled(ref) && (detail::callbacks_entered != 0 || !owner_.calls(owner_.transaction_of(ref), true));
  }
  /// How its transaction ended; `open` while it has not. Error: unknown_reference.
  result<settlement> settlement_of(const reference& ref) noexcept { return owner_.settlement_of(ref); }
  /// How one recipient stands with the reference; without a version, with the last one that it has asked for.
  /// unknown_reference: nothing is remembered of it, which may be so if its transaction is over and it has a record of
  /// the next version.
  result<recipient_record> recipient_of(const reference& ref, recipient_id who) noexcept {
    return owner_.recipient_of(ref, who);
  }
  /// Copies the records of the reference's recipients into `out`, as many as fit; the number copied. Those of another
  /// reference of its transaction are that one's.
  std::size_t recipients_of(const reference& ref, std::span<recipient_record> out) noexcept {
    return owner_.recipients_of(ref, out);
  }
  /// How many callbacks (of transactions, or of authorise()) have thrown. Their exceptions are dropped.
  std::uint64_t callback_failures() const noexcept {
    const lock_guard hold(lock_);
    return callback_failures_;
  }

  /// Reads the clock for the budgets and reports progress, then calls deliver(). Drivers call it several times a
  /// second.
  void tick() noexcept {
    catch_up();
    report();
    deliver();
  }
  /// Calls back for each transaction that has settled, then releases the models that were handed over for it. Drivers
  /// call it after each step. A settlement is told after the progress of its transaction: by the thread whose callback
  /// returns last.
  void deliver() noexcept { deliver({}); }

  /// Whether there is as much room as was wanted. If not, nothing can be published.
  bool has_room() const noexcept { return has_room_; }

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
  /// True: there was something to report.
  bool report() noexcept {
    progress_event e;
    callback<const progress_event&> tell;
    bool any = false;
    while (const transaction_id t = owner_.next_event(e, tell)) {
      contain(tell, e);
      returned(t);
      any = true;
    }
    return any;
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
  /// Tells of a transaction of which a reference has ended.
  result<void> ended(const result<transaction_id>& of) noexcept {
    if (!of) return failure(of.error());
    const bool inside = detail::callbacks_entered != 0;
    for (;;) {
      report();
      deliver(inside ? *of : transaction_id{});
      // with one thread it is our caller that reads another of its images, and waiting for it would never end
      if (std::is_same_v<Lock, no_lock> || !owner_.calls(*of, !inside)) return {};
      lock_.relax();  // another thread is in a callback of it, or sends the last bytes of another of its images
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

  /// The memory that a publication with digests of tensors keeps: its table borrows the names of the model.
  struct with_digests {
    unique_any model;
    image_with_tensor_digests image;
  };

  /// Its digest, or a random number if the integrity policy has none.
  static result<std::uint64_t> version_of(const source_view& image, const stop_token& stop = {}) noexcept {
    if constexpr (Parts::verifiable) {
      return image_version<typename Parts::owner_hash, digest_slice>(image, stop);
    } else {
      std::uint64_t version = 0;
      while (version == 0) version = system_entropy{}();
      return version;
    }
  }
  result<reference> publish(const source_view& image, const publish_options& options, unique_any keep) noexcept {
    if (options.tensor_digests) {
      auto made = image_with_tensor_digests::make<typename Parts::owner_hash, digest_slice>(image);
      if (!made) return failure(made.error());
      unique_any both;
      const auto* const kept = both.keep(with_digests{std::move(keep), std::move(*made)});
      if (kept == nullptr) return failure(errc::out_of_memory);
      publish_options rest = options;
      rest.tensor_digests = false;
      return publish(kept->image.source(), rest, std::move(both));
    }
    const std::uint64_t fingerprint = image.schema->fingerprint;  // a callback may end the image before this returns
    const auto version = options.version != 0 ? result<std::uint64_t>(options.version) : version_of(image);
    if (!version) return failure(version.error());
    const system_entropy random;
    ref_id id = options.id;
    while (!id) id = {random(), random()};
    const bool joins = options.beside || options.transaction;
    result<transaction_id> t = options.beside ? owner_.transaction_of(options.beside) : options.transaction;
    if (!joins) t = open_transaction(options.alone());
    if (!t) return failure(t.error());
    kept_model* const kept = keep ? put_away(*t, keep) : nullptr;  // before a recipient can settle it
    const auto done = keep ? result<ref_id>(failure(errc::table_full, room_.kept.size()))
                           : owner_.publish(
                                 image, *version, Parts::verifiable, id, *t, [this]() noexcept { return report(); },
                                 bool(options.beside), options.replaced_stays);
    if (!done) {
      take_back(kept, keep);
      if (!joins) owner_.cancel(*t);
      return failure(done.error());
    }
    if (!joins) owner_.seal(*t);
    deliver();  // publishing may have replaced another version
    return reference{id, *version, fingerprint};
  }
  /// Keeps a model. Without room: nullptr, and `keep` is unchanged.
  kept_model* put_away(transaction_id id, unique_any& keep) noexcept {
    const lock_guard hold(lock_);
    for (auto& k : room_.kept)
      if (!k.source) {
        k = {id, std::move(keep)};
        return &k;
      }
    return nullptr;
  }
  void take_back(kept_model* k, unique_any& keep) noexcept {
    const lock_guard hold(lock_);
    if (k != nullptr) keep = std::move(k->source);
  }
  void release(transaction_id id) noexcept {
    const detail::callback_scope here;  // a model's destructor may withdraw, too
    for (auto& k : room_.kept) {
      unique_any gone;  // destroyed without the lock: a model's destructor is the application's
      const lock_guard hold(lock_);
      if (k.source && k.transaction == id) gone = std::move(k.source);
    }
  }

  // larger than the 4 KiB of a device, because a file is read faster so; limits for small machines make it smaller
  static constexpr std::size_t digest_slice = Parts::limits::control_frame_bytes < 4096
                                                  ? 4 * Parts::limits::control_frame_bytes
                                                  : 16 * 1024;

  detail::room_of<typename Parts::limits, kept_model, References, Recipients> room_;
  owner_type owner_;
  authorise_callback may_{};
  std::uint64_t callback_failures_ = 0;
  bool has_room_;
  [[no_unique_address]] mutable Lock lock_{};  // guards what is kept, and the count
};

/// The same for the models of a pipeline. `Parts`: its resolved policies (detail/policy_slots.hpp).
template <class Parts, class Lock = no_lock, std::size_t Recipients = 64,
          std::size_t References = Parts::limits::references>
class publisher : public image_publisher<owner_parts_of<Parts>, Lock, Recipients, References>,
                  public adding_tensors<publisher<Parts, Lock, Recipients, References>, typename Parts::tensors> {
 public:
  using image_publisher<owner_parts_of<Parts>, Lock, Recipients, References>::image_publisher;

 private:
  friend adding_tensors<publisher, typename Parts::tensors>;
  publisher& published() noexcept { return *this; }
};

}  // namespace tensorpull
