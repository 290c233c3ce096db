// A set of tensors as a member of a message struct: what is sent, where it lands, or a handle to what has not been
// pulled yet.
#pragma once

#include <tensorpull/consumers/land.hpp>
#include <tensorpull/image/booleans.hpp>
#include <tensorpull/messages/detail/image_part.hpp>
#include <tensorpull/messages/detail/inline_image.hpp>
#include <tensorpull/messages/download.hpp>
#include <tensorpull/tensors/concept.hpp>
#include <tensorpull/tensors/structs/raw.hpp>

#include <memory>
#include <optional>
#include <utility>

namespace tensorpull {

// A message has numbers as little-endian bytes, which are copied from and to memory as they are.
static_assert(little_endian_machine, "tensorpull: messages with structs are not supported on big-endian machines");

namespace detail {

struct set_access;

template <class T>
struct set_policy {
  using type = raw_tensors<T>;
};
template <class T>
  requires requires { typename T::is_tensor_policy; }
struct set_policy<T> {
  using type = T;
};

/// The part of a set that arrived: the split, the inline bytes, and where the rest is.
struct arrived_set {
  std::uint64_t fingerprint = 0, limit = 0, digest = 0;
  locator rest{};  ///< of the large tensors; without addresses: the sender of the message owns them
  std::unique_ptr<std::byte[]> inlined;
  std::size_t inlined_bytes = 0;

  std::span<const std::byte> image() const noexcept { return {inlined.get(), inlined_bytes}; }
};

}  // namespace detail

/// Where a received set lands in a model: for programs that drive the pull themselves, as handlers of a host do.
/// Movable; borrows the set and the model until finish() has returned.
class set_landing {
 public:
  /// The split follows the sender's limit; everything that can be checked without pulling is. Errors as
  /// tensors_of::download_tensors; unsupported_layout with the name of a tensor that a destination_writer would have to
  /// take (pull such models by their reference).
  static result<set_landing> make(const detail::arrived_set& set, const destination_view& whole) noexcept {
    using enum detail::part_of_set;
    if (whole.schema->fingerprint != set.fingerprint) return failure(errc::schema_mismatch);
    for (const tensor_entry& t : whole.schema->entries())
      if (t.indirect) return failure(errc::unsupported_layout, t.begin, t.name);
    auto inlined = detail::image_part::make(*whole.schema, whole.where, set.limit, small);
    if (!inlined) return failure(inlined.error());
    auto rest = detail::image_part::make(*whole.schema, whole.where, set.limit, large);
    if (!rest) return failure(rest.error());
    if (inlined->empty() ? set.inlined_bytes != 0 : !detail::is_image_of(set.image(), inlined->schema()))
      return failure(errc::schema_mismatch);
    if (rest->empty() == static_cast<bool>(set.rest)) return failure(errc::schema_mismatch);
    return set_landing(set, whole, std::move(*inlined), std::move(*rest));
  }

  /// The part that has to be pulled into consumer(); nothing: everything arrived inline.
  std::optional<locator> remote() const noexcept { return set_->rest ? std::optional(set_->rest) : std::nullopt; }
  /// Lands the large tensors; valid while this object lives. Only if remote() is something.
  land consumer() const noexcept { return land(rest_.destination(whole_.base)); }
  /// After the pull went well: copies the inline tensors. The model is complete, unless one of them has a BOOL element
  /// that is neither 0 nor 1: value_out_of_range, with its name.
  result<void> finish() const noexcept {
    if (!inlined_.empty()) {
      const destination_view to = inlined_.destination(whole_.base);
      detail::read_image(set_->image(), to);
      if (const auto good = check_booleans(to); !good) {
        mend_booleans(to, to.schema->data_bytes());
        return good;
      }
    }
    whole_.complete();  // neither part could: each has only some of the tensors
    return {};
  }

 private:
  set_landing(const detail::arrived_set& set, const destination_view& whole, detail::image_part inlined,
              detail::image_part rest) noexcept
      : set_(&set), whole_(whole), inlined_(std::move(inlined)), rest_(std::move(rest)) {}
  const detail::arrived_set* set_;
  destination_view whole_;
  detail::image_part inlined_, rest_;
};

/// `Model`: a struct adapted with BOOST_HANA_ADAPT_STRUCT, or a tensor policy (renamed structs:
/// raw_tensors<renamed<...>>; tensor_list). Move-only, since a received set owns its small tensors' bytes until they
/// have been pulled.
template <class Model>
class tensors_of {
 public:
  using tensors = typename detail::set_policy<Model>::type;  ///< The tensor policy.
  using model_type = typename tensors::model_type;  ///< The model that it describes.

  /// Nothing to send; receives as a handle.
  tensors_of() noexcept = default;
  /// To send: borrowed. The model must not change while what was published of it is neither settled nor withdrawn.
  tensors_of(const model_type& model) noexcept : model_(&model) {}
  tensors_of(const model_type&&) = delete;
  /// To send: shared, and released when everything published of it has settled (and this member is gone).
  tensors_of(std::shared_ptr<const model_type> model) noexcept : model_(model.get()), kept_(std::move(model)) {}

  /// To receive eagerly: the message's tensors land in `model`, which is borrowed until the message was received.
  static tensors_of into(model_type& model) noexcept {
    tensors_of set;
    set.into_ = &model;
    return set;
  }

  /// Whether a message that was received has filled this member.
  bool received() const noexcept { return arrived_.has_value(); }
  /// A received set: what has to be pulled, with the addresses that came with it; nothing if all tensors arrived
  /// inline. For a third party: add the owner's address if there is none. It names the tensors above the sender's
  /// limit, not the inline ones; to hand over the whole set, send this member on in another message.
  std::optional<locator> remote() const noexcept {
    if (!arrived_ || !arrived_->rest) return std::nullopt;
    return arrived_->rest;
  }
  /// A received set: is told where its owner can be reached, so that it can be sent on to somebody else. As
  /// locator::add; invalid_argument if nothing was received. An inline set needs no owner: the address is checked and
  /// forgotten.
  result<void> owner_at(std::string_view address) noexcept {
    if (!arrived_) return failure(errc::invalid_argument);
    locator rest = arrived_->rest;
    const auto ok = rest.add(address);
    // Addresses without a reference would lead to nothing, and whoever receives them refuses the message.
    if (ok && rest) arrived_->rest = rest;
    return ok;
  }

  /// Pulls a received set into `model` from the sender of the message, over the session by which it arrived. The model
  /// is unspecified after an error. An inline set is copied, which sends nothing: its receipt has completed_unverified
  /// and 0 chunks, since the sender does not hear of it. Errors: invalid_argument (nothing was received),
  /// schema_mismatch, unsupported_layout, out_of_memory, those of the pull. If the set is split, it makes a table of 64
  /// bytes a tensor on the heap. May be repeated.
  template <class Session>
  result<receipt> download_tensors(Session& session, model_type& model,
                                   const pull_options& options = {}) const noexcept {
    return recompose(model, [&](land& to) { return session.pull(arrived_->rest.reference, to, options); });
  }
  /// The parts of download_tensors for a program that drives the pull itself
  /// (connection.pull(landing.remote()->reference, {}, landing.consumer()) on a host whose consumer is `land`): nothing
  /// is written before finish() but by that pull. invalid_argument: nothing was received.
  result<set_landing> land_in(model_type& model) const noexcept {
    if (!arrived_) return failure(errc::invalid_argument);
    return set_landing::make(*arrived_, tensors::destination(model));
  }
  /// The same from the addresses that came with the set, with a connection of its own. bad_address: there were none, or
  /// none of Net's link. `where`: as download_tensors of a locator.
  template <class Net, class Where = detail::as_text>
  result<receipt> download_tensors(model_type& model, const pull_options& options = {},
                                   Where where = {}) const noexcept {
    return recompose(model, [&](land& to) { return pull<Net>(arrived_->rest, where, to, options); });
  }

 private:
  friend struct detail::set_access;

  template <class Pull>
  result<receipt> recompose(model_type& model, Pull pull) const noexcept {
    const auto landing = land_in(model);
    if (!landing) return failure(landing.error());
    result<receipt> done = receipt{outcome::completed_unverified, arrived_->inlined_bytes, 0, 0,
                                   arrived_->fingerprint,         arrived_->digest};
    if (landing->remote()) {
      land to = landing->consumer();
      done = pull(to);
    }
    if (done)
      if (const auto ok = landing->finish(); !ok) return failure(ok.error());
    return done;
  }

  const model_type* model_ = nullptr;
  std::shared_ptr<const model_type> kept_;
  model_type* into_ = nullptr;
  std::optional<detail::arrived_set> arrived_;
};

namespace detail {

/// The decomposer's view of a set.
struct set_access {
  template <class M> static const auto* model(const tensors_of<M>& s) noexcept { return s.model_; }
  template <class M> static const auto& kept(const tensors_of<M>& s) noexcept { return s.kept_; }
  template <class M> static auto* into(const tensors_of<M>& s) noexcept { return s.into_; }
  template <class M> static auto& arrived(tensors_of<M>& s) noexcept { return s.arrived_; }
  template <class M> static const auto& arrived(const tensors_of<M>& s) noexcept { return s.arrived_; }
};

}  // namespace detail
}  // namespace tensorpull
