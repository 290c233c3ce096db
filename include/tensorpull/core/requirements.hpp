// How the requirements of a concept are written: once, as a list.
#pragma once

namespace tensorpull::detail {

/// The base of a list of requirements if nothing stands in for the type that misses one of them.
struct nothing_instead {};

// A list is a class template. For each requirement it has `met_<number>`, a constant: whether this one and all before
// it are met. Next to it stands the sentence for a type that misses it:
//
//   template <class T, bool Silent = true, class Instead = nothing_instead>
//   struct clock_requirements : Instead {
//     static constexpr bool met_1 = requires { typename T::is_clock; };
//     static_assert(Silent || met_1, "a clock names is_clock (requirement 1)");
//     static constexpr bool met_2 = met_1 && requires(T t) { { t.now() } noexcept -> std::same_as<std::uint64_t>; };
//     static_assert(Silent || met_2 == met_1, "a clock tells the time (requirement 2): std::uint64_t now() noexcept");
//   };
//   template <class T>
//   concept clock = clock_requirements<T>::met_2;
//
// A type that T may lack stands in the braces, as in std::declval<typename T::clock_state&>(), and not in the list of
// parameters: clang 14 takes it for an error there.
//
// So a concept is that its list's last constant is true. Silent lists report nothing, whatever is missed. With Silent
// false the compiler reports one sentence, that of the first requirement that is missed. A list that is used as a type
// instead of the refused one (a pipeline) derives from a stand-in, so that no other error follows.

}  // namespace tensorpull::detail
