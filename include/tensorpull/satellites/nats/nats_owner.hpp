// The owner's side over NATS: publishes under subjects of each reference, alone or as one of several owners of one
// content.
#pragma once

#include <tensorpull/satellites/nats/nats_link.hpp>
#include <tensorpull/satellites/nats/nats_watch.hpp>
#include <tensorpull/satellites/nats/replica_role.hpp>
#include <tensorpull/transports/peers/owner.hpp>
#include <tensorpull/transports/publishing_owner.hpp>

#include <array>
#include <utility>

namespace tensorpull {

/// The part of an owner in its transactions.
enum class nats_part : std::uint8_t {
  coordinator,  ///< describes, gives chunks, takes confirmations, and settles. One for each reference
  replica,      ///< gives chunks of what another owner coordinates: the same content under the same reference ID
};

/// The server of an owner, and its recipients.
struct nats_owner_options {
  nats_server server{};                       ///< where, and as whom
  nats_part part = nats_part::coordinator;    ///< its part
  /// of a replica: how long the coordinator may be gone before its transactions end as owner_lost
  nats_patience patience{};
  datagram_owner_options serving{};  ///< how many it serves, how fast, and whom; `listen` is not used
  stop_token stop{};  ///< ends open()
};

/// A pipeline's `downloader` over NATS. Movable. One thread at a time. Its end settles what is open: callbacks are
/// called once more. A reference is served under `tensorpull.<its 32 digits>.coordinator` and, by all owners of its
/// content, `tensorpull.<its 32 digits>.any`: the server gives each request for a chunk to one of them.
///
/// A replica publishes under the ID of the coordinator's reference (`publish_options::id`). The content must be the
/// same, since the version is the digest; requests for another version are not answered. Its own transaction expects
/// nobody, and ends by withdraw(), or as verdict::owner_lost.
template <class Parts, class Tensors>
class nats_owner : public publishing_owner<nats_owner<Parts, Tensors>, Tensors> {
  using base = publishing_owner<nats_owner, Tensors>;
  using served_type = datagram_owner<Parts, Tensors>;
  using link_type = typename Parts::transport::link;
  using clock = std::chrono::steady_clock;

 public:
  /// Connects to the server. Errors: those of basic_nats_link::connect.
  static result<nats_owner> open(const nats_owner_options& options = {}) noexcept {
    const bool replica = options.part == nats_part::replica;
    auto link = link_type::connect(options.server, options.stop, most * 2);
    if (!link) return failure(link.error());
    auto owner = served_type::over(std::move(*link), options.serving);
    if (!owner) return failure(owner.error());
    if (replica) owner->role().only_chunks();
    return nats_owner(std::move(*owner), options);
  }

  /// As publishing_owner::add_tensors; returns when the server has acknowledged. More errors: not_permitted: the server
  /// does not let this user subscribe; timed_out: it has not answered within its `timeout`.
  template <class Model>
  result<reference> add_tensors(Model&& model, const publish_options& options = {}) {
    return served(base::add_tensors(std::forward<Model>(model), published_as(options)));
  }
  /// As publishing_owner::add_image, with the same errors.
  result<reference> add_image(const source_view& image, const publish_options& options = {},
                              unique_any keep = {}) noexcept {
    return served(base::add_image(image, published_as(options), std::move(keep)));
  }
  /// Deleted: the server acknowledges one subject after the other, and may refuse the second while the first is served.
  template <class Images>
  result<transaction_id> add_images(Images&& images, const transaction_options& options, unique_any keep = {},
                                    const stop_token& stop = {}) = delete;
  /// As publishing_owner::open_transaction.
  result<transaction_id> open_transaction(const transaction_options& options) noexcept {
    return base::open_transaction(published_as(options));
  }
  /// As publisher::withdraw. A replica leaves its group first.
  result<void> withdraw(const reference& ref, std::uint32_t reason = 0) noexcept {
    if (is_replica())
      if (place* const p = find(ref.id); p != nullptr && (ref.version == 0 || ref.version == p->ref.version)) leave(*p);
    return base::withdraw(ref, reason);
  }

  /// How many peers it remembers now.
  std::size_t peers() const noexcept { return owner_.peers(); }
  /// Its counts.
  datagram_owner_counts counts() const noexcept { return owner_.counts(); }
  /// Whether there is no server now.
  bool away() noexcept { return owner_.link().away(); }

 private:
  friend base;
  friend publishing<nats_owner, Tensors>;
  static constexpr std::size_t most = Parts::limits::references;
  static constexpr const char* group = "owners";
  struct place {
    reference ref{};
    nats_watch watch{};
  };

  nats_owner(served_type owner, const nats_owner_options& options) noexcept
      : owner_(std::move(owner)), patience_(options.patience), timeout_(options.server.timeout), stop_(options.stop) {}
  auto& published() noexcept { return owner_.published(); }
  const auto& published() const noexcept { return owner_.published(); }
  bool is_replica() noexcept { return owner_.role().is_replica(); }

  template <class Options>
  Options published_as(const Options& o) noexcept {
    return is_replica() ? detail::expecting_nobody(o) : o;
  }
  place* find(ref_id id) noexcept {
    for (place& p : places_)
      if (p.ref.id == id) return &p;
    return nullptr;
  }
  /// A free entry. If all are taken, one whose transaction is over makes room.
  place* vacant() noexcept {
    if (place* const free = find({})) return free;
    for (place& p : places_)
      if (this->settled(p.ref)) {
        leave(p);
        return &p;
      }
    return nullptr;
  }
  void leave(place& p) noexcept {
    link_type& link = owner_.link();
    link.stop_serving(nats_subject::any(p.ref.id));
    link.stop_serving(nats_subject::coordinator(p.ref.id));
    if (p.watch) p.watch.end(link);
    p = {};
  }
  /// Serves the subjects of what was published.
  result<reference> served(const result<reference>& ref) noexcept {
    if (!ref) return ref;
    if (place* const again = find(ref->id)) {
      again->ref = *ref;
      return ref;
    }
    const auto give_up = [&](const error& why) noexcept -> result<reference> {
      (void)base::withdraw(*ref);
      return failure(why);
    };
    place* const p = vacant();
    if (p == nullptr) return give_up({errc::table_full, 0, most, {}});
    p->ref = *ref;
    link_type& link = owner_.link();
    const nats_subject coordinator = nats_subject::coordinator(ref->id), any = nats_subject::any(ref->id);
    auto ok = is_replica() ? p->watch.begin(link, coordinator, clock::now()) : link.serve(coordinator);
    if (ok) ok = link.serve(any, group);
    if (ok && !is_replica()) ok = link.settle(coordinator, timeout_, stop_);
    if (ok) ok = link.settle(any, timeout_, stop_);
    if (ok) return ref;
    leave(*p);
    return give_up(ok.error());
  }

  void serve_a_while() noexcept {
    owner_.serve_a_while();
    if (!is_replica()) return;
    const auto now = clock::now();
    for (place& p : places_) {
      if (!p.watch) continue;
      p.watch.step(owner_.link(), now);
      if (!p.watch.lost(patience_, now)) continue;
      const reference gone = p.ref;
      leave(p);
      (void)published().lose(gone);
    }
  }

  served_type owner_;
  nats_patience patience_;
  std::chrono::milliseconds timeout_;
  stop_token stop_;
  std::array<place, most> places_{};
};

}  // namespace tensorpull
