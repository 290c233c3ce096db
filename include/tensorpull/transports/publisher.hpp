// The owner role on a host: slots, kept sources and digests around the owner's state machine. Every driver that owns has one.
#pragma once

#include <tensorpull/protocol/owner.hpp>
#include <tensorpull/transports/entropy.hpp>
#include <tensorpull/transports/kept_source.hpp>

#include <array>
#include <concepts>
#include <type_traits>
#include <utility>

namespace tensorpull {

/// `Parts` are a pipeline's resolved policies (pipeline.hpp); `Lock` as the owner's. Not movable: connections point to it.
template <class Parts, class Lock = no_lock>
class publisher {
 public:
  using owner_type = owner<typename Parts::owner_hash, typename Parts::limits, Lock>;
  using tensors = typename Parts::tensors;
  using model_type = typename tensors::model_type;

  publisher() noexcept : owner_(slots_, system_entropy{}) {}
  publisher(const publisher&) = delete;
  publisher& operator=(const publisher&) = delete;

  /// Publishes a model that the caller keeps: it must not change until it is settled or withdrawn.
  /// Cost: one pass over the bytes for the digest (none where the integrity policy has no digest of the whole).
  /// Errors: table_full; what the tensor policy finds (unsupported_layout, ...).
  result<reference> add_tensors(const model_type& model, publish_options options = {}) noexcept { return publish(tensors::source(model), options, {}); }
  /// Publishes a model that is handed over (`add_tensors(std::move(model))`): it is kept, and released when the reference is settled or
  /// withdrawn. Also out_of_memory.
  template <class Model>
    requires(std::is_same_v<Model, model_type>)
  result<reference> add_tensors(Model&& model, publish_options options = {}) {
    detail::kept_source keep;
    const auto* const kept = keep.keep(std::forward<Model>(model));
    if (kept == nullptr) return failure(errc::out_of_memory);
    return publish(tensors::source(*kept), options, std::move(keep));
  }
  /// The same for a pointer that owns a model (std::shared_ptr, std::unique_ptr, model_ptr).
  template <class Pointer>
    requires(!std::is_pointer_v<Pointer> && requires(const Pointer& p) { { *p } -> std::convertible_to<const model_type&>; })
  result<reference> add_tensors(Pointer pointer, publish_options options = {}) {
    const model_type& model = *pointer;
    detail::kept_source keep;
    if (keep.keep(std::move(pointer)) == nullptr) return failure(errc::out_of_memory);
    return publish(tensors::source(model), options, std::move(keep));
  }
  /// A constant temporary can be neither kept nor borrowed.
  result<reference> add_tensors(const model_type&&, publish_options = {}) = delete;
  /// Publishes any image; the memory behind the view is the caller's.
  result<reference> add_image(const source_view& image, publish_options options = {}) noexcept { return publish(image, options, {}); }

  /// After this nothing reads the model any more; recipients are told `withdrawn`. busy: a callback asks while it is read; nothing changes.
  result<void> withdraw(const reference& ref) noexcept {
    const auto done = owner_.withdraw(ref.id);
    if (done || done.error() != errc::busy) release(ref.id);  // busy: it is being read
    return done;
  }

  result<publication_status> status_of(const reference& ref) const noexcept { return owner_.status_of(ref.id); }
  bool settled(const reference& ref) const noexcept { return owner_.settled(ref.id); }

  /// Withdraws and releases what was handed over and is settled. Drivers call it from time to time.
  void release_settled() noexcept {
    const hold_lock hold(lock_);
    for (auto& k : kept_)
      if (k.source && owner_.settled(k.id)) {
        (void)owner_.withdraw(k.id);
        k = {};
      }
  }

  owner_type& machine() noexcept { return owner_; }

 private:
  struct kept_model {
    ref_id id{};
    detail::kept_source source;
  };

  result<reference> publish(const source_view& image, publish_options options, detail::kept_source keep) noexcept {
    const system_entropy random;
    std::uint64_t version = 0;
    if constexpr (Parts::integrity::whole) version = image_version<typename Parts::owner_hash>(image);
    else while (version == 0) version = random();
    while (!options.id) options.id = {random(), random()};
    const auto id = owner_.publish(image, version, Parts::integrity::whole, options.id, options.recipients);
    if (!id) return failure(id.error());
    release(*id);
    if (keep) {
      const hold_lock hold(lock_);
      for (auto& k : kept_)
        if (!k.source) {
          k = {*id, std::move(keep)};
          break;
        }
    }
    return reference{*id, version, image.schema->fingerprint};
  }
  void release(ref_id id) noexcept {
    const hold_lock hold(lock_);
    for (auto& k : kept_)
      if (k.source && k.id == id) k = {};
  }

  std::array<publication, Parts::limits::references> slots_{};
  std::array<kept_model, Parts::limits::references> kept_{};
  owner_type owner_;
  [[no_unique_address]] Lock lock_{};  // of kept_; taken before the owner's
};

}  // namespace tensorpull
