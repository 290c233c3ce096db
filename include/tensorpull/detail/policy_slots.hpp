// Sorts policies into the slots of a pipeline, whatever their order, and finds the first thing that is wrong with them.
// The fault becomes the pipeline's type, so that the class with the sentence is instantiated next to the user's line
// and a compiler lists as little as possible before it.
#pragma once

#include <tensorpull/chunking/policies.hpp>
#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/core/limits.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/framing/concept.hpp>
#include <tensorpull/framing/detail/control_words.hpp>
#include <tensorpull/framing/detail/payload_prefix.hpp>
#include <tensorpull/framing/word_framing.hpp>
#include <tensorpull/image/view.hpp>
#include <tensorpull/integrity/policies.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/tensors/concept.hpp>
#include <tensorpull/tensors/members/detail/model_walk.hpp>
#include <tensorpull/transports/concept.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace tensorpull {

struct host_platform;  // system/host_platform.hpp

namespace detail {
/// In place of a policy that a program leaves out; pipeline.hpp has what it is for hosts.
struct usual_integrity;
template <class Integrity>
struct integrity_in {
  using type = Integrity;
};
/// The clock and the random numbers of drivers: a limits policy for another machine than a host names them.
template <class Limits>
struct platform_of {
  using type = host_platform;
};
template <class Limits>
  requires requires { typename Limits::platform; }
struct platform_of<Limits> {
  using type = typename Limits::platform;
};
/// The hash of an owner. Never none: an owner answers requests for digests whatever its own policy is.
template <class Hash>
struct owner_hash {
  using type = Hash;
};
}  // namespace detail

/// The policies that a pipeline was resolved to, one for each slot. Drivers take it as `Parts`.
template <class Tensors, class Chunking, class Transport, class Framing, class Integrity, class Limits>
struct pipeline_parts {
  using tensors = Tensors;
  using chunking = Chunking;
  using transport = Transport;
  using framing = Framing;
  using integrity = Integrity;
  using limits = Limits;
  /// The clock and the random numbers of drivers (pull/platform.hpp).
  using platform = typename detail::platform_of<Limits>::type;
  /// The hash of an owner.
  using owner_hash = typename detail::owner_hash<typename Integrity::hash_type>::type;
  /// The hash of an owner's chunks.
  using owner_chunk_hash = std::conditional_t<Integrity::per_chunk, chunk_hash_of<Integrity>, owner_hash>;
};

template <class Parts>
struct composed_pipeline;  // pipeline.hpp

namespace detail {

enum slot : unsigned {
  in_tensors = 1,
  in_chunking = 2,
  in_transport = 4,
  in_framing = 8,
  in_integrity = 16,
  in_limits = 32,
};

/// The slots that P names. A policy names one.
template <class P>
inline constexpr unsigned slots_of = (requires { typename P::is_tensor_policy; } ? in_tensors : 0u) |
                                     (requires { typename P::is_chunking_policy; } ? in_chunking : 0u) |
                                     (requires { typename P::is_transport_policy; } ? in_transport : 0u) |
                                     (requires { typename P::is_framing_policy; } ? in_framing : 0u) |
                                     (requires { typename P::is_integrity_policy; } ? in_integrity : 0u) |
                                     (requires { typename P::is_limits_policy; } ? in_limits : 0u);

/// Policies by slot: the first one in each slot has that as its key. A base class is found by its key at once; looking
/// into a list for each of six slots costs hundreds of instantiations a pipeline.
template <unsigned Key, class P>
struct keyed_policy {};
template <class Keys, class... P>
struct policy_set;
template <unsigned... Keys, class... P>
struct policy_set<std::integer_sequence<unsigned, Keys...>, P...> : keyed_policy<Keys, P>... {};

/// The slot of the policy at `place`, or another number than that of any slot.
constexpr unsigned key_of(const unsigned* slots, unsigned place) noexcept {
  const unsigned own = slots[place];
  bool first = (own & (own - 1)) == 0;
  for (unsigned i = 0; i < place; ++i) first = first && slots[i] != own;
  return first && own != 0 ? own : 64 + place;
}
template <class... P>
inline constexpr unsigned slots_in[] = {slots_of<P>..., 0};
template <class Places, class... P>
struct policies_by_slot;
template <unsigned... Places, class... P>
struct policies_by_slot<std::integer_sequence<unsigned, Places...>, P...> {
  using type = policy_set<std::integer_sequence<unsigned, key_of(slots_in<P...>, Places)...>, P...>;
};

template <unsigned Slot, class Fallback, class P>
std::type_identity<P> policy_in(const keyed_policy<Slot, P>*);
template <unsigned Slot, class Fallback>
std::type_identity<Fallback> policy_in(const void*);
/// The policy in a slot of a set, or `Fallback` if there is none.
template <slot Slot, class Fallback, class Set>
using policy_t = typename decltype(policy_in<Slot, Fallback>(static_cast<Set*>(nullptr)))::type;

/// Stand-ins for policies that are missing or wrong. They accept any arguments, so that one mistake does not become
/// many errors.
struct anything {
  constexpr anything() noexcept = default;
  template <class T>
  constexpr anything(const T&) noexcept {}
};
using missing_model = const anything;
template <class Model>
struct missing_tensors {
  using model_type = Model;
  static constexpr bool is_static = false;
  static source_view source(const Model&) noexcept { return {}; }
  static destination_view destination(Model&) noexcept { return {}; }
};
struct missing_transport {
  static constexpr std::uint64_t max_payload_bytes = tensorpull::max_payload_bytes;
  static constexpr std::size_t connection_bytes = 0;
  template <class>
  using downloader = missing_transport;
  template <class>
  using session = missing_transport;
  template <class Parts, class... Arguments>
  static result<receipt> pull(Arguments&&...) noexcept;
  static result<missing_transport> open(anything = {}, anything = {}) noexcept;
  static result<missing_transport> connect(anything = {}, anything = {}, anything = {}) noexcept;
  static result<reference> add_tensors(anything, anything = {}) noexcept;
};
struct missing_chunking : fixed_bytes<default_chunk_bytes> {};

template <class T>
constexpr auto model_of() noexcept {
  if constexpr (requires { typename T::model_type; }) return std::type_identity<typename T::model_type>{};
  else return std::type_identity<missing_model>{};
}
/// The parts of a pipeline that has a mistake.
template <class Tensors>
using missing_parts = pipeline_parts<missing_tensors<typename decltype(model_of<Tensors>())::type>, missing_chunking,
                                     missing_transport, word_framing, unverified, default_limits>;

/// Whether the schema is a constant, as that of a static model is; a model that was refused has none, and was reported
/// already.
template <class Tensors>
concept has_constant_schema = requires {
  typename std::integral_constant<std::uint64_t, Tensors::schema().image_bytes>;
};

/// The longest chunk that can occur. `whole` sends the image as one chunk, whose length is known at compile time for a
/// static model only.
template <class Chunking, class Tensors>
constexpr std::uint64_t longest_chunk() noexcept {
  if constexpr (Chunking::max_chunk_bytes != 0)
    return std::min(Chunking::max_chunk_bytes, max_payload_bytes);  // a longer one was refused already
  else if constexpr (has_constant_schema<Tensors>) return Tensors::schema().image_bytes;
  else return max_payload_bytes;
}

/// The faults of policies that meet the requirements of their slots; pipeline.hpp has a sentence for each.
enum fault : int {
  fault_none,
  fault_model_itself,
  fault_no_policy,
  fault_two_slots,
  fault_no_tensors,
  fault_two_tensors,
  fault_no_chunking,
  fault_two_chunking,
  fault_no_transport,
  fault_two_transport,
  fault_two_framing,
  fault_two_integrity,
  fault_two_limits,
  fault_loss_unchecked,
  fault_frames_too_long,
  fault_whole_in_pieces,
  fault_no_integrity,
  fault_own_framing,
};

/// The fault of the list of policies, before any policy is looked at.
constexpr fault list_fault(const unsigned* slots, std::size_t count) noexcept {
  unsigned n[6] = {};
  for (std::size_t i = 0; i < count; ++i) {
    if (slots[i] == 0) return fault_no_policy;
    if ((slots[i] & (slots[i] - 1)) != 0) return fault_two_slots;
    for (unsigned s = 0; s < 6; ++s) n[s] += slots[i] >> s & 1;
  }
  if (n[0] != 1) return n[0] == 0 ? fault_no_tensors : fault_two_tensors;
  if (n[1] != 1) return n[1] == 0 ? fault_no_chunking : fault_two_chunking;
  if (n[2] != 1) return n[2] == 0 ? fault_no_transport : fault_two_transport;
  if (n[3] > 1) return fault_two_framing;
  if (n[4] > 1) return fault_two_integrity;
  return n[5] > 1 ? fault_two_limits : fault_none;
}

template <class P>
constexpr bool is_model() noexcept {
  if constexpr (slots_of<P> == 0) return member_table<P>::is_struct;
  else return false;
}

/// The longest frame that one message has to carry, in bytes.
template <class Framing>
inline constexpr std::size_t longest_short_frame = short_frame_bytes;
template <class Framing>
  requires requires { Framing::short_frame_bytes; }
inline constexpr std::size_t longest_short_frame<Framing> = Framing::short_frame_bytes;
/// Whether one message of the transport carries each frame that cannot be cut.
template <class Framing, class Transport>
inline constexpr bool frames_fit = longest_short_frame<Framing> <=
                                       payload_prefix::bytes + Transport::max_payload_bytes ||
                                   (requires { requires Transport::cuts_frames; } &&
                                    longest_short_frame<Framing> <= short_frame_bytes);

/// The report of the first type that is no policy: its `refused_as_policy<Instead>`, which derives from Instead and has
/// a static_assert with a sentence.
template <class Instead, class P, class... Rest>
struct own_refusal : own_refusal<Instead, Rest...> {};
template <class Instead, class P, class... Rest>
  requires requires { typename P::template refused_as_policy<Instead>; }
struct own_refusal<Instead, P, Rest...> : std::type_identity<typename P::template refused_as_policy<Instead>> {};

/// Refuses a composition, with the sentence for the fault.
template <fault Fault, class Instead>
struct refused_composition;
template <std::uint64_t Chunk, std::uint64_t Most, class Instead>
struct refused_chunk;

/// A composition. `policy_bytes` is not used: sizeof makes a policy's own static_asserts fail next to the user's line;
/// inside a requires-expression clang would report that the type is no policy.
template <std::size_t policy_bytes, class... P>
struct composition {
  using by_slot =
      typename policies_by_slot<std::make_integer_sequence<unsigned, static_cast<unsigned>(sizeof...(P))>, P...>::type;
  using limits = policy_t<in_limits, default_limits, by_slot>;
  using tensors = policy_t<in_tensors, missing_tensors<missing_model>, by_slot>;
  using chunking = policy_t<in_chunking, missing_chunking, by_slot>;
  using transport = policy_t<in_transport, missing_transport, by_slot>;
  using integrity = policy_t<in_integrity, usual_integrity, by_slot>;
  /// The stand-in for a pipeline with a mistake.
  using instead = composed_pipeline<missing_parts<tensors>>;

  /// The pipeline, or the class that refuses it.
  static constexpr auto resolved() noexcept {
    constexpr fault list = list_fault(slots_in<P...>, sizeof...(P));
    if constexpr (list == fault_no_policy && (is_model<P>() || ...))
      return found<refused_composition<fault_model_itself, instead>>{};
    else if constexpr (list == fault_no_policy &&
                       (... || requires { typename P::template refused_as_policy<instead>; }))
      return found<typename own_refusal<instead, P...>::type>{};
    else if constexpr (list != fault_none) return found<refused_composition<list, instead>>{};
    else if constexpr (!tensor_policy<tensors>) return found<tensor_requirements<tensors, false, instead>>{};
    else if constexpr (!chunking_strategy<chunking>) return found<chunking_requirements<chunking, false, instead>>{};
    else if constexpr (requires { typename limits::has_machine; }) {
      if constexpr (std::is_void_v<policy_t<in_framing, void, by_slot>>)
        return found<typename limits::template machine<tensors, chunking, transport, integrity>>{};
      else return found<refused_composition<fault_own_framing, instead>>{};
    } else return with_integrity<typename integrity_in<integrity>::type>();
  }
  /// The same for a host, from the integrity policy on.
  template <class integrity>
  static constexpr auto with_integrity() noexcept {
    if constexpr (std::is_same_v<integrity, usual_integrity>)
      return found<refused_composition<fault_no_integrity, instead>>{};
    else if constexpr (!integrity_policy<integrity>) return found<integrity_requirements<integrity, false, instead>>{};
    else if constexpr (!limits_policy<limits>) return found<limits_requirements<limits, false, instead>>{};
    else {
      using framing_policy = policy_t<in_framing, basic_word_framing<limits>, by_slot>;
      using parts = pipeline_parts<tensors, chunking, transport, framing_policy, integrity, limits>;
      using composed = composed_pipeline<parts>;
      if constexpr (!framing<framing_policy>) return found<framing_requirements<framing_policy, false, instead>>{};
      else if constexpr (!tensorpull::transport<transport>)
        return found<transport_requirements<transport, false, instead>>{};
      else if constexpr (!transport_for<transport, parts>)
        return found<transport_in_pipeline_requirements<transport, parts, false, instead>>{};
      else if constexpr (!transport::reliable && !integrity::whole && !integrity::per_chunk)
        return found<refused_composition<fault_loss_unchecked, composed>>{};
      else if constexpr (!frames_fit<framing_policy, transport>)
        return found<refused_composition<fault_frames_too_long, composed>>{};
      else if constexpr (chunking::max_chunk_bytes == 0 && !(transport::reliable && transport::ordered))
        return found<refused_composition<fault_whole_in_pieces, composed>>{};
      else if constexpr (requires { typename chunking::template within<8>; })
        return found<
            composed_pipeline<pipeline_parts<tensors, typename chunking::template within<transport::max_payload_bytes>,
                                             transport, framing_policy, integrity, limits>>>{};
      else if constexpr (longest_chunk<chunking, tensors>() > transport::max_payload_bytes)
        return found<refused_chunk<longest_chunk<chunking, tensors>(), transport::max_payload_bytes, composed>>{};
      else return found<composed>{};
    }
  }
  template <class Pipeline>
  struct found {
    using type = Pipeline;
  };
  using type = typename decltype(resolved())::type;
};

}  // namespace detail

}  // namespace tensorpull
