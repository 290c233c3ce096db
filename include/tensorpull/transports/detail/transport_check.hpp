// Finds which requirement a transport misses. The requirements are in transports/concept.hpp, the sentences in
// pipeline.hpp.
#pragma once

#include <tensorpull/core/peer_identity.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace tensorpull::detail {

/// The number of the first requirement that T misses, or 0. Requirement 7, `pull`, depends on the type of its address,
/// so it is checked at the call.
template <class T, class Parts>
constexpr int missed_of_transport() noexcept {
  if constexpr (!requires { typename T::is_transport_policy; }) return 1;
  else if constexpr (!requires { requires std::same_as<decltype(T::max_payload_bytes), const std::uint64_t>; })
    return 2;
  else if constexpr (!requires { requires std::same_as<decltype(T::connection_bytes), const std::size_t>; }) return 3;
  else if constexpr (!requires {
                       requires __is_same(decltype(T::reliable), const bool) &&
                                    __is_same(decltype(T::ordered), const bool);  // what is_same_v is made of
                       requires __is_same(decltype(T::shares_memory), const bool) &&
                                    __is_same(decltype(T::encrypted), const bool);
                       requires __is_same(decltype(T::identifies), const identity_kind);
                     })
    return 4;
  else if constexpr (!requires { typename T::template downloader<Parts>; }) return 5;
  else return requires { typename T::template session<Parts>; } ? 0 : 6;
}

}  // namespace tensorpull::detail
