// A struct's members as a constant list, without a macro and without Hana: names, and where they are. If Hana is
// available, BOOST_HANA_ADAPT_STRUCT is shorter (tensors/structs/raw.hpp). Either serves hosts and small machines.
#pragma once

#include <string_view>
#include <tuple>

namespace tensorpull {

/// One member of a model: the name that its tensor has on the wire, and where it is in the struct.
template <class Struct, class Type>
struct member {
  /// The member's type: a scalar, an array of scalars of any rank (one tensor each), a struct that is a model, or an
  /// array of such structs.
  using type = Type;
  /// `member{"fc1.weight", &mlp::fc1_weight}`. The text of the name has to be a constant.
  constexpr member(std::string_view text, Type Struct::* where) noexcept : name(text), at(where) {}
  std::string_view name;  ///< UTF-8
  Type Struct::* at;  ///< the member
};

/// The list for members_of. The order does not matter: an image has its own.
template <class... Members>
constexpr auto members(Members... list) noexcept {
  return std::tuple<Members...>(list...);
}

/// The members of a model. Specialise it in the global namespace, next to the struct:
///
///     template <>
///     inline constexpr auto tensorpull::members_of<mlp> = tensorpull::members(tensorpull::member{"fc1.weight",
///     &mlp::fc1_weight});
///
/// The names of a struct within a struct have its member's name in front, and those in an array of structs their number
/// besides: `layers.0.weight`. A struct that is adapted with Hana, too, has these members.
template <class Model>
inline constexpr auto members_of = nullptr;

}  // namespace tensorpull
