// pipeline<policies...>: the compiler puts together one specialised downloader (the owner's side) and one specialised
// consumer (the recipient's side). detail/policy_slots.hpp sorts the policies. Hosts include pipeline.hpp, which has
// the defaults that need an operating system; small machines include device.hpp.
#pragma once

#include <tensorpull/consumers/land.hpp>
#include <tensorpull/core/buffer_pool.hpp>
#include <tensorpull/detail/policy_slots.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>
#include <tensorpull/protocol/recipient/transfer.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/pull/running_pull.hpp>
#include <tensorpull/tensors/concept.hpp>
#include <tensorpull/transports/concept.hpp>
#include <tensorpull/transports/pull_options.hpp>

#include <cstddef>
#include <utility>

namespace tensorpull {

template <hash Hash, class Limits, class Lock, hash ChunkHash>
class owner;  // protocol/owner/owner.hpp: a program that only pulls need not compile it
struct publication;

/// The type behind pipeline<Policies...>: its policies, sorted by slot.
template <class Parts>
struct composed_pipeline {
  using parts = Parts;  ///< the policies by slot
  using limits = typename parts::limits;  ///< bounds of frames and tables
  using model_type = typename parts::tensors::model_type;  ///< what is published and landed in
  using chunking = typename parts::chunking;  ///< how an image is cut into chunks

  /// The owner's side: publishes, answers pulls, settles.
  using downloader = typename parts::transport::template downloader<parts>;
  /// Both sides over one connection, for a program that waits.
  using session = typename parts::transport::template session<parts>;

  /// Many connections in both roles on one event loop, if the transport has such a driver. `Consumer`: what connections
  /// pull into.
  template <class Handler, class Consumer, class Transport = typename parts::transport>
  using host = typename Transport::template host<parts, Handler, Consumer>;

  /// The recipient's side: lands in a model's own memory. Borrows the model.
  class consumer : public land {
   public:
    /// Borrows the model, which must not move.
    explicit consumer(model_type& model) noexcept : land(parts::tensors::destination(model)) {}
  };
  /// The state machine of one pull into any consumer, for a driver of the user's own.
  template <class Consumer>
  using transfer = tensorpull::transfer<typename detail::checked_consumer<Consumer>::type, chunking,
                                        typename parts::integrity, limits>;

  /// Connects to `where` (an address; for loopback the downloader itself), pulls what is published under `ref` into
  /// `model`, and closes. The library allocates nothing; the system's resolver may (getaddrinfo). After an error the
  /// model is unspecified from its first landed byte on; the error's `at` is how many landed.
  template <class Where>
  static result<receipt> download_tensors(Where&& where, const reference& ref, model_type& model,
                                          const pull_options& options = {}, chunking cut = {}) noexcept {
    static_assert(
        detail::lands<typename parts::tensors>,
        "tensorpull: models of this tensor policy are only read: it has no destination(model) (requirement 5)");
    static_assert(
        pulls_from<typename parts::transport, parts, Where, consumer>,
        "tensorpull: a transport pulls (requirement 7): template <class Parts> static result<receipt> pull(where, ref, consumer, options, "
        "chunking) noexcept; this one has none for this type of `where`: tcp takes an address as text, loopback a downloader");
    if constexpr (detail::lands<typename parts::tensors> &&
                  pulls_from<typename parts::transport, parts, Where, consumer>) {
      consumer to(model);
      return parts::transport::template pull<parts>(std::forward<Where>(where), ref, to, options, cut);
    } else return failure(errc::bad_address);  // refused above
  }
  /// The same without a version: whatever is published under `id` now, by the word of whoever answers
  /// (receipt::believed). Over a link where anybody can answer first: version_required, unless pull_options::believe is
  /// set.
  template <class Where>
  static result<receipt> download_tensors(Where&& where, ref_id id, model_type& model, const pull_options& options = {},
                                          chunking cut = {}) noexcept {
    return download_tensors(std::forward<Where>(where), reference{id, 0, 0}, model, options, cut);
  }
  /// The same into any consumer (a file, a digest, an average). Leave out the last argument: by its type the
  /// compiler names the requirement that a consumer misses.
  template <class Where, class Consumer>
  static result<receipt> pull(Where&& where, const reference& ref, Consumer& to, const pull_options& options = {},
                              chunking cut = {}, detail::consumer_checks<Consumer> = {}) noexcept {
    static_assert(
        !tensorpull::consumer<Consumer> || pulls_from<typename parts::transport, parts, Where, Consumer>,
        "tensorpull: a transport pulls (requirement 7): template <class Parts> static result<receipt> pull(where, ref, consumer, options, "
        "chunking) noexcept; this one has none for this type of `where`: tcp takes an address as text, loopback a downloader");
    static_assert(
        can_undo<Consumer>,
        "tensorpull: this consumer cannot undo what it has taken, so the pipeline needs an integrity policy that checks each chunk "
        "(chunk_and_image_digest or chunk_digest)");
    if constexpr (tensorpull::consumer<Consumer> && pulls_from<typename parts::transport, parts, Where, Consumer> &&
                  can_undo<Consumer>)
      return parts::transport::template pull<parts>(std::forward<Where>(where), ref, to, options, cut);
    else return failure(errc::bad_address);  // refused above
  }
  /// The same without a version, as download_tensors. A template, so that {} is an empty reference.
  template <class Where, class Id, class Consumer>
    requires(__is_same(Id, ref_id))
  static result<receipt> pull(Where&& where, Id id, Consumer& to, const pull_options& options = {}, chunking cut = {},
                              detail::consumer_checks<Consumer> = {}) noexcept {
    return pull(std::forward<Where>(where), reference{id, 0, 0}, to, options, cut);
  }

  /// Opens what is published under `ref` as a read-only view of the memory in which it lies, if the transport shares
  /// memory. Nothing is copied. Errors: as the transport's view().
  template <class Where, class Transport = typename parts::transport>
  static auto view(Where&& where, const reference& ref, const pull_options& options = {}) noexcept {
    constexpr bool opens = requires { Transport::template open_view<parts>(where, ref, options); };
    static_assert(
        opens,
        "tensorpull: this transport has no views, since it shares no memory between programs: use download_tensors, or a transport that has open_view");
    if constexpr (opens) return Transport::template open_view<parts>(std::forward<Where>(where), ref, options);
    else return result<receipt>(failure(errc::invalid_argument));
  }
  /// The same without a version, as download_tensors.
  template <class Where, class Transport = typename parts::transport>
  static auto view(Where&& where, ref_id id, const pull_options& options = {}) noexcept {
    return view<Where, Transport>(std::forward<Where>(where), reference{id, 0, 0}, options);
  }

  /// Refuses a temporary model, which would be gone when the pull has ended.
  template <class Where, class Ref, class Model>
    requires(__is_same(Model, model_type))  // what is_same_v is made of: it is asked at each call of the others
  static result<receipt> download_tensors(Where&&, const Ref&, Model&&, const pull_options& = {},
                                          chunking = {}) noexcept {
    static_assert(
        !std::is_same_v<Model, model_type>,
        "tensorpull: download_tensors was given a temporary, which is gone when the tensors have landed: give the model a name");
    return failure(errc::bad_address);
  }

 private:
  template <class Consumer>
  static constexpr bool can_undo = [] {
    if constexpr (tensorpull::consumer<Consumer>) return !Consumer::irrevocable || parts::integrity::per_chunk;
    else return true;  // refused already
  }();
  /// A framing that cannot leave lists out decodes each frame into memory for all of them.
  static constexpr std::size_t decoding_stack = [] {
    if constexpr (requires { typename parts::framing::short_storage; }) return std::size_t{0};
    else return sizeof(typename parts::framing::decode_storage) + 2048;
  }();
  template <class Resolved>  // a template, so that `owner` may be incomplete
  struct owner_side {
    using type =
        owner<typename Resolved::owner_hash, typename Resolved::limits, no_lock, typename Resolved::owner_chunk_hash>;
    using slot = publication;
  };

 public:
  /// The memory in bytes that a pipeline needs besides the models themselves: for a static_assert in a program whose
  /// memory is limited. Nothing else is allocated; what a message, a name or a file of yours takes is yours. Those of
  /// an owner need protocol/owner/owner.hpp, those of a session transports/session/stream_session.hpp.
  /// tests/torture/memory.test.cpp measures them all.
  struct memory_bound {
    /// A pull that lands in place, all of it on the stack of the thread that pulls: endpoint, transfer, digest,
    /// consumer, and a buffer for a page.
    static constexpr std::size_t recipient = [] {
      using transport = typename parts::transport;
      constexpr std::size_t pulling = sizeof(detail::running_pull<parts, consumer>) + sizeof(consumer) +
                                      sizeof(buffer_pool<>);
      if constexpr (requires { transport::template pull_bytes<parts>; })
        return pulling + transport::template pull_bytes<parts>;
      else
        return pulling + sizeof(endpoint<typename parts::framing, limits, no_owner, ignore_messages>) +
               limits::page_bytes;
    }();
    /// The share of that stack that the calls of a pull take besides its state, as g++ 12 compiles them with -O1 and
    /// -O2 for x86-64 (-O3 inlines more, and takes up to twice as much: 7,768 bytes over TCP): 4 KiB for each end that
    /// is in this process, and a hash that is begun anew for each chunk. The system's resolver is not counted
    /// (getaddrinfo, for an address in text), nor a resume, which hashes what is there through a slice of 4 KiB, nor
    /// your options and callbacks.
    static constexpr std::size_t recipient_stack = [] {
      using transport = typename parts::transport;
      using chunk_hash = chunk_hash_of<typename parts::integrity>;
      constexpr std::size_t ends = requires { transport::template pull_bytes<parts>; } ? 2 : 1;
      return ends * 4096 + decoding_stack + (parts::integrity::per_chunk ? sizeof(chunk_hash) : 0);
    }();
    /// A connection, and what the transport adds to it.
    static constexpr std::size_t owner_per_recipient =
        sizeof(endpoint<typename parts::framing, limits, typename owner_side<parts>::type, ignore_messages>) +
        parts::transport::connection_bytes;
    /// One slot. A static model has no table; a dynamic model has its own, which is not counted here.
    static constexpr std::size_t owner_per_reference = sizeof(typename owner_side<parts>::slot);
    /// The buffer of each thread that runs an owner.
    static constexpr std::size_t slice = 64 * 1024;
    /// A session, without its buffers.
    static constexpr std::size_t session = composed_pipeline::session::state_bytes;
    /// The buffers of a session: messages that arrive, leave and wait, and a slice.
    static constexpr std::size_t session_buffers = composed_pipeline::session::buffer_bytes;
    /// The stack that the calls of a session, and those of a thread that runs an owner, take. The lists of a request
    /// for named tensors take most of it, and after them the slice through which the digest of what is not in memory is
    /// computed.
    static constexpr std::size_t serving_stack = 24 * 1024;
  };
  /// The bounds of this pipeline.
  static constexpr memory_bound memory{};
};

namespace detail {
/// The sentence for each mistake in a composition whose policies meet the requirements of their slots. Derives from
/// the class that stands in for the pipeline. The sentences are here because no header is closer to the user's line.
template <fault Fault, class Instead>
struct refused_composition : Instead {
  static_assert(
      Fault != fault_model_itself,
      "tensorpull: a model was given to pipeline<...> where its tensor policy belongs: write raw_tensors<Model>");
  static_assert(
      Fault != fault_no_policy,
      "tensorpull: one of the types given to pipeline<...> is no policy: a policy names is_tensor_policy, is_chunking_policy, is_transport_policy, "
      "is_framing_policy, is_integrity_policy or is_limits_policy; a struct of tensors is given as raw_tensors<Struct>, and limits derive from default_limits");
  static_assert(
      Fault != fault_two_slots,
      "tensorpull: one of the types given to pipeline<...> names two slots (is_..._policy): a policy is for one");
  static_assert(Fault != fault_no_tensors,
                "tensorpull: a pipeline needs a tensor policy: add raw_tensors<Model> or tensor_list");
  static_assert(Fault != fault_two_tensors, "tensorpull: a pipeline has two tensor policies: keep one");
  static_assert(
      Fault != fault_no_chunking,
      "tensorpull: a pipeline needs a chunking policy: add fixed_bytes<N>, bytes_up_to<Max>, adaptive_bytes<Min, Max>, fit_datagram, per_tensor<Max> or whole");
  static_assert(Fault != fault_two_chunking, "tensorpull: a pipeline has two chunking policies: keep one");
  static_assert(Fault != fault_no_transport, "tensorpull: a pipeline needs a transport policy: add tcp or loopback");
  static_assert(Fault != fault_two_transport, "tensorpull: a pipeline has two transport policies: keep one");
  static_assert(Fault != fault_two_framing, "tensorpull: a pipeline has two framing policies: keep one");
  static_assert(Fault != fault_two_integrity, "tensorpull: a pipeline has two integrity policies: keep one");
  static_assert(Fault != fault_two_limits, "tensorpull: a pipeline has two limits policies: keep one");
  static_assert(
      Fault != fault_loss_unchecked,
      "tensorpull: this transport loses, doubles and changes bytes, and nothing in this pipeline would notice: leave `unverified` out, or check each chunk (chunk_digest)");
  static_assert(
      Fault != fault_frames_too_long,
      "tensorpull: a message of this transport is too short for the frames of this framing: each has to fit one message, and the longest that cannot be cut has "
      "`short_frame_bytes` of the framing");
  static_assert(
      Fault != fault_whole_in_pieces,
      "tensorpull: `whole` sends the image as one chunk, and a transport that is not reliable and ordered carries it in many messages: use fit_datagram");
  static_assert(
      Fault != fault_no_integrity,
      "tensorpull: this pipeline needs small_machine<Platform>, or an integrity policy such as basic_image_digest<xxh3_64>: only tensorpull/pipeline.hpp "
      "has one by default");
  static_assert(Fault != fault_own_framing,
                "tensorpull: a small machine has a framing of its own: leave the framing policy out");
};
/// The same for a chunk that is too long. A compiler tells both numbers.
template <std::uint64_t Chunk, std::uint64_t Most, class Instead>
struct refused_chunk : Instead {
  static_assert(
      Chunk <= Most,
      "tensorpull: the chunk does not fit one message of this transport: choose a smaller chunk, or fit_datagram");
};
}  // namespace detail

/// Policies in any order: one for tensors, one for chunking, one for the transport; framing, integrity and limits have
/// defaults. It is a composed_pipeline. If something is wrong with the policies, it is a class whose static_assert
/// names the fault.
template <class... Policies>
using pipeline = typename detail::composition<(std::size_t{0} + ... + sizeof(Policies)), Policies...>::type;

}  // namespace tensorpull
