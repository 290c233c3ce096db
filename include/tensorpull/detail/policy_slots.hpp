// Sorts policies into the slots of a pipeline, whatever their order, and says in one sentence what is missing or there twice.
#pragma once

#include <tensorpull/chunking/policies.hpp>
#include <tensorpull/core/limits.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/image/view.hpp>
#include <tensorpull/integrity/xxhash/policies.hpp>
#include <tensorpull/consumers/receipt.hpp>

#include <boost/hana/at.hpp>
#include <boost/hana/basic_tuple.hpp>
#include <boost/hana/type.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tensorpull::detail {

template <class P> struct in_tensors : std::bool_constant<requires { typename P::is_tensor_policy; }> {};
template <class P> struct in_chunking : std::bool_constant<requires { typename P::is_chunking_policy; }> {};
template <class P> struct in_transport : std::bool_constant<requires { typename P::is_transport_policy; }> {};
template <class P> struct in_framing : std::bool_constant<requires { typename P::is_framing_policy; }> {};
template <class P> struct in_integrity : std::bool_constant<requires { typename P::is_integrity_policy; }> {};
template <class P> struct in_limits : std::bool_constant<requires { typename P::is_limits_policy; }> {};

template <template <class> class Slot, class... P>
inline constexpr int slot_count = (0 + ... + (Slot<P>::value ? 1 : 0));

/// The policy for a slot, or `Fallback` where there is none.
/// An index and at_c: hana::filter, for each of six slots, costs 700 instantiations a pipeline.
template <template <class> class Slot, class Fallback, class... P>
constexpr auto policy_of() {
  namespace hana = boost::hana;
  constexpr std::size_t place = [] {
    std::size_t i = 0;
    (void)(... || (Slot<P>::value || (++i, false)));
    return i;
  }();
  if constexpr (place < sizeof...(P)) return hana::at_c<place>(hana::basic_tuple<hana::type<P>...>{});
  else return hana::type<Fallback>{};
}
template <template <class> class Slot, class Fallback, class... P>
using policy_t = typename decltype(policy_of<Slot, Fallback, P...>())::type;

/// Stand-ins for a slot that was left empty: they keep one mistake from becoming many errors.
struct missing_model {};
struct missing_tensors {
  using model_type = missing_model;
  static constexpr bool is_static = false;
  static source_view source(const missing_model&) noexcept { return {}; }
  static destination_view destination(missing_model&) noexcept { return {}; }
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
};
struct missing_chunking : fixed_bytes<default_chunk_bytes> {};

/// The longest chunk that can occur; `whole` sends the image as one, whose length is known for a static model only.
template <class Chunking, class Tensors>
constexpr std::uint64_t longest_chunk() noexcept {
  if constexpr (Chunking::max_chunk_bytes != 0) return std::min(Chunking::max_chunk_bytes, max_payload_bytes);  // more was refused already
  else if constexpr (Tensors::is_static) return Tensors::schema().image_bytes;
  else return max_payload_bytes;
}

/// The checks that every pipeline passes, one sentence each.
template <class... P>
struct slot_checks {
  // a policy's own requirements fail here, and not inside the requires-expressions below, which clang would take for "is no policy"
  enum : std::size_t { bytes = (std::size_t{0} + ... + sizeof(P)) };
  static_assert(((in_tensors<P>::value || in_chunking<P>::value || in_transport<P>::value || in_framing<P>::value || in_integrity<P>::value || in_limits<P>::value) && ...),
                "tensorpull: one of the types given to pipeline<...> is no policy: a policy names is_tensor_policy, is_chunking_policy, is_transport_policy, "
                "is_framing_policy, is_integrity_policy or is_limits_policy");
  static_assert(slot_count<in_tensors, P...> != 0, "tensorpull: a pipeline needs a tensor policy: add raw_tensors<Model> or tensor_list");
  static_assert(slot_count<in_tensors, P...> < 2, "tensorpull: a pipeline has two tensor policies: keep one");
  static_assert(slot_count<in_chunking, P...> != 0, "tensorpull: a pipeline needs a chunking policy: add fixed_bytes<N>, bytes_up_to<Max>, per_tensor<Max> or whole");
  static_assert(slot_count<in_chunking, P...> < 2, "tensorpull: a pipeline has two chunking policies: keep one");
  static_assert(slot_count<in_transport, P...> != 0, "tensorpull: a pipeline needs a transport policy: add tcp or loopback");
  static_assert(slot_count<in_transport, P...> < 2, "tensorpull: a pipeline has two transport policies: keep one");
  static_assert(slot_count<in_framing, P...> < 2, "tensorpull: a pipeline has two framing policies: keep one");
  static_assert(slot_count<in_integrity, P...> < 2, "tensorpull: a pipeline has two integrity policies: keep one");
  static_assert(slot_count<in_limits, P...> < 2, "tensorpull: a pipeline has two limits policies: keep one");
  static constexpr bool passed = true;
};

}  // namespace tensorpull::detail
