// pipeline<policies...>: one specialised downloader (the owner's side) and one specialised consumer (the recipient's side), put together
// by the compiler. With policy_slots.hpp the only place that uses Hana on policies.
#pragma once

#include <tensorpull/consumers/land.hpp>
#include <tensorpull/framing/word_framing.hpp>
#include <tensorpull/detail/policy_slots.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/protocol/owner/owner.hpp>
#include <tensorpull/protocol/recipient/transfer.hpp>
#include <tensorpull/tensors/concept.hpp>
#include <tensorpull/transports/concept.hpp>

#include <utility>

namespace tensorpull {

/// What a pipeline was resolved to. Drivers take it as `Parts`.
template <class Tensors, class Chunking, class Transport, class Framing, class Integrity, class Limits>
struct pipeline_parts {
  using tensors = Tensors;
  using chunking = Chunking;
  using transport = Transport;
  using framing = Framing;
  using integrity = Integrity;
  using limits = Limits;
  /// an owner answers requests for chunk digests whatever its own policy is
  using owner_hash = std::conditional_t<std::is_same_v<typename Integrity::hash_type, detail::no_hash>, xxhash_digest, typename Integrity::hash_type>;
  using owner_chunk_hash = std::conditional_t<Integrity::per_chunk, chunk_hash_of<Integrity>, owner_hash>;
};

/// What a pipeline takes beside the model itself, in bytes; see `pipeline::memory`.
struct memory_bound {
  std::size_t recipient;           ///< landing in place: connection, transfer, digest, consumer, a page
  std::size_t owner_per_recipient; ///< connection and what the transport adds to it
  std::size_t owner_per_reference; ///< one slot; a static model has no table, a dynamic one has its own
  std::size_t slice;               ///< for each thread of an owner
};

/// Policies in any order: one for tensors, one for chunking, one for the transport; framing, integrity and limits have defaults.
template <class... Policies>
struct pipeline {
  static_assert(detail::slot_checks<Policies...>::passed);

  using limits = detail::policy_t<detail::in_limits, default_limits, Policies...>;
  using parts = pipeline_parts<detail::policy_t<detail::in_tensors, detail::missing_tensors, Policies...>,
                               detail::policy_t<detail::in_chunking, detail::missing_chunking, Policies...>,
                               detail::policy_t<detail::in_transport, detail::missing_transport, Policies...>,
                               detail::policy_t<detail::in_framing, basic_word_framing<limits>, Policies...>,
                               detail::policy_t<detail::in_integrity, image_digest, Policies...>, limits>;
  static_assert(detail::longest_chunk<typename parts::chunking, typename parts::tensors>() <= parts::transport::max_payload_bytes,
                "tensorpull: the chunk does not fit one message of this transport: choose a smaller chunk");

  using model_type = typename parts::tensors::model_type;
  using chunking = typename parts::chunking;

  /// The owner's side: publishes, answers pulls, settles.
  using downloader = typename parts::transport::template downloader<parts>;
  /// Both sides over one connection, for a device that waits.
  using session = typename parts::transport::template session<parts>;

  /// Many connections in both roles on one event loop, where the transport has such a driver. `Consumer`: what connections pull into.
  template <class Handler, class Consumer, class Transport = typename parts::transport>
  using host = typename Transport::template host<parts, Handler, Consumer>;

  /// The recipient's side: lands in a model's own memory. Borrows the model.
  class consumer : public land {
   public:
    explicit consumer(model_type& model) noexcept : land(parts::tensors::destination(model)) {}
  };
  /// One pull into any consumer, for those who drive it themselves.
  template <class Consumer>
  using transfer = tensorpull::transfer<Consumer, chunking, typename parts::integrity, limits>;

  /// Connects to `where` (an address; for loopback the downloader itself), pulls what is published under `ref` into `model`, closes.
  /// Allocates nothing. After an error the model is unspecified from its first landed byte on; the error's `at` says how many landed.
  template <class Where>
  static result<receipt> download_tensors(Where&& where, const reference& ref, model_type& model, const pull_options& options = {}, chunking cut = {}) noexcept {
    consumer to(model);
    const auto done = parts::transport::template pull<parts>(std::forward<Where>(where), ref, to, options, cut);
    if (done) detail::after_landing<typename parts::tensors>(model);
    return done;
  }
  template <class Where>
  static result<receipt> download_tensors(Where&& where, ref_id id, model_type& model, const pull_options& options = {}, chunking cut = {}) noexcept {
    return download_tensors(std::forward<Where>(where), reference{id, 0, 0}, model, options, cut);
  }
  /// The same into any consumer (a file, a digest, an average).
  template <class Where, class Consumer>
  static result<receipt> pull(Where&& where, const reference& ref, Consumer& to, const pull_options& options = {}, chunking cut = {}) noexcept {
    return parts::transport::template pull<parts>(std::forward<Where>(where), ref, to, options, cut);
  }

 private:
  using owner_type = owner<typename parts::owner_hash, limits, no_lock, typename parts::owner_chunk_hash>;

 public:
  /// For static_assert in a program that has to fit.
  static constexpr memory_bound memory{
      sizeof(endpoint<typename parts::framing, limits, no_owner, ignore_messages>) + sizeof(transfer<consumer>) + sizeof(consumer) + limits::page_bytes,
      sizeof(endpoint<typename parts::framing, limits, owner_type, ignore_messages>) + parts::transport::connection_bytes,
      sizeof(publication),
      64 * 1024,
  };
};

}  // namespace tensorpull
