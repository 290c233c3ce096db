// A struct adapted with BOOST_HANA_ADAPT_STRUCT as a model: the members are Hana's list. The only header of tensors
// that needs Hana; a struct that has members_of needs none (tensors/members/raw_tensors.hpp).
#pragma once

#include <tensorpull/tensors/members/raw_tensors.hpp>

#include <boost/hana/accessors.hpp>
#include <boost/hana/adapt_struct.hpp>
#include <boost/hana/concept/struct.hpp>
#include <boost/hana/pair.hpp>
#include <boost/hana/string.hpp>
#include <boost/hana/tuple.hpp>

namespace tensorpull::detail {

template <class T>
  requires(boost::hana::Struct<T>::value && !is_listed<T>)
struct member_table<T> {
  static constexpr bool is_struct = true;
  template <class Struct = T>
  using of = decltype(boost::hana::accessors<Struct>());
};
template <char... Characters, class Accessor>
struct member_of<boost::hana::pair<boost::hana::string<Characters...>, Accessor>> {
  using accessor = Accessor;
  static constexpr std::size_t length = sizeof...(Characters);
  static constexpr const char* name() noexcept { return boost::hana::string<Characters...>::c_str(); }
  template <class T>
  static constexpr decltype(auto) get(T& object) noexcept {
    return Accessor{}(object);
  }
  template <class T>
  using type = std::remove_reference_t<decltype(Accessor{}(std::declval<T&>()))>;
};
// A name in the macro that is no member leaves something else than a list.
template <class... Members>
struct is_member_list<boost::hana::tuple<Members...>> : std::true_type {};

}  // namespace tensorpull::detail
