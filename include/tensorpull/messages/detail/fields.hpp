// Which members of a message struct can travel, and a walk over them. A nested struct's members stand for it, with
// dotted names.
#pragma once

#include <tensorpull/messages/tensors_of.hpp>
#include <tensorpull/tensors/structs/raw.hpp>

#include <array>
#include <concepts>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tensorpull::detail {

/// How a member travels. `none`: it cannot.
enum class field_kind : std::uint8_t {
  none,
  boolean,
  integer,
  floating,
  text,
  characters,
  list,
  numbers,
  tensors,
  locator,
  optional,
  items,
  entries,
  structure,
};

/// Elements of arrays and vectors: numbers whose every bit pattern is a value.
template <class T>
concept number = tensor_scalar<T> && !std::is_same_v<T, bool>;

template <class T>
inline constexpr bool is_set = false;
template <class M>
inline constexpr bool is_set<tensors_of<M>> = true;
template <class T>
inline constexpr bool is_characters = false;
template <std::size_t N>
inline constexpr bool is_characters<char[N]> = true;
template <std::size_t N>
inline constexpr bool is_characters<std::array<char, N>> = true;
template <class T>
inline constexpr bool is_number_list = false;
template <number T, class A>
inline constexpr bool is_number_list<std::vector<T, A>> = true;

/// The element of a member that holds any number of them, or perhaps one: a type of `element` that a message that
/// arrives makes.
template <class T>
struct holder {
  static constexpr field_kind kind = field_kind::none;
};
template <class T>
struct holder<std::optional<T>> {
  static constexpr field_kind kind = field_kind::optional;
  using element = T;
};
template <class T>
struct holder<std::optional<std::optional<T>>> {  // nothing, or something that is nothing: one word for both
  static constexpr field_kind kind = field_kind::none;
};
template <class T, class A>
  requires(!number<T> && !std::is_same_v<T, bool>)
struct holder<std::vector<T, A>> {
  static constexpr field_kind kind = field_kind::items;
  using element = T;
};
/// std::map, and every map with its members: <map> would be read for all messages.
template <class T>
  requires requires(T map, typename T::key_type key) {
    map.extract(key);
    map.try_emplace(std::move(key));
  } && std::is_same_v<typename T::key_type, std::string>
struct holder<T> {
  static constexpr field_kind kind = field_kind::entries;
  using element = typename T::mapped_type;
};

template <class T>
constexpr field_kind kind_of() noexcept {
  if constexpr (std::is_const_v<T>) return field_kind::none;  // it could be sent and never received
  else if constexpr (std::is_same_v<T, bool>) return field_kind::boolean;
  else if constexpr (std::is_enum_v<T>)  // without a fixed type not every number of its size is one of its values
    return sizeof(T) <= 8 && requires { T{0}; } ? field_kind::integer : field_kind::none;
  else if constexpr (plain_integer<T>) return field_kind::integer;
  else if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) return field_kind::floating;
  else if constexpr (std::is_same_v<T, std::string>) return field_kind::text;
  else if constexpr (is_characters<T>) return field_kind::characters;
  else if constexpr (is_number_list<T>) return field_kind::list;
  else if constexpr (holder<T>::kind != field_kind::none) return holder<T>::kind;
  else if constexpr (array_traits<T>::is_array)
    return number<typename array_traits<T>::scalar> && sizeof(T) > 0 ? field_kind::numbers : field_kind::none;
  else if constexpr (is_set<T>) return field_kind::tensors;
  else if constexpr (std::is_same_v<T, tensorpull::locator>) return field_kind::locator;
  else if constexpr (member_table<T>::is_struct) return field_kind::structure;
  else return field_kind::none;
}

/// The first type in T that cannot travel, or void. `Around`: the structs in which it lies, of which none is within
/// itself: how deep a message is follows from its type.
template <class T, field_kind Kind = kind_of<T>(), class... Around>
struct first_untravelled {
  using type = void;
};
template <class T, class... Around>
struct first_untravelled<T, field_kind::none, Around...> {
  using type = T;
};
template <class T, field_kind Kind, class... Around>
  requires(Kind == field_kind::optional || Kind == field_kind::items || Kind == field_kind::entries)
struct first_untravelled<T, Kind, Around...> {
  using element = typename holder<T>::element;
  using type = std::conditional_t<std::default_initializable<element>,
                                  typename first_untravelled<element, kind_of<element>(), Around...>::type, T>;
};
template <class T, class... Around>
struct first_untravelled<T, field_kind::structure, Around...> {
  template <class Member>
  using of = typename member_of<Member>::template type<T>;
  template <template <class...> class List, class... Members>
  static first_not_void<typename first_untravelled<of<Members>, kind_of<of<Members>>(), T, Around...>::type...> among(
      std::type_identity<List<Members...>>);
  using type = typename decltype(among(std::type_identity<members_in<T>>{}))::type;
};
template <class T, class... Around>
  requires(std::is_same_v<T, Around> || ...)
struct first_untravelled<T, field_kind::structure, Around...> {
  using type = T;
};

/// False for the type of a member that cannot travel: compilers then print the type alongside the message.
template <class FirstUntravelled>
inline constexpr bool all_members_travel = std::is_void_v<FirstUntravelled>;

/// The requirements on a message struct. `accepted` keeps a refusal from becoming many errors.
template <class Message>
struct message_checks {
  static constexpr bool is_struct = kind_of<Message>() == field_kind::structure;
  static_assert(
      is_struct,
      "tensorpull: a message is a struct adapted with BOOST_HANA_ADAPT_STRUCT (at most 39 members: nest structs for more)");
  using untravelled =
      typename std::conditional_t<is_struct, first_untravelled<Message>, std::type_identity<void>>::type;
  static_assert(
      all_members_travel<untravelled>,
      "tensorpull: a member of the message struct cannot travel: members are numbers, bool, enumerations with a fixed type, std::string, char arrays, arrays of "
      "numbers, tensors_of<Model>, locator, adapted structs of these, and std::vector, std::map<std::string, ...> and std::optional of these; not "
      "pointers, not const, not std::vector<bool>, not a struct within itself");
  static constexpr bool accepted = is_struct && std::is_void_v<untravelled>;
};

/// Fields of a message, those of nested structs included.
template <class T>
constexpr std::size_t count_fields() noexcept {
  std::size_t n = 0;
  for_each_member<T>([&n](auto member) {
    using type = typename decltype(member)::template type<T>;
    if constexpr (kind_of<type>() == field_kind::structure) n += count_fields<type>();
    else ++n;
  });
  return n;
}
/// Room for the longest dotted name.
template <class T>
constexpr std::size_t longest_name() noexcept {
  std::size_t most = 0;
  for_each_member<T>([&most](auto member) {
    using type = typename decltype(member)::template type<T>;
    std::size_t n = member.length;
    if constexpr (kind_of<type>() == field_kind::structure) n += 1 + longest_name<type>();
    if (n > most) most = n;
  });
  return most;
}

/// Calls visit.field<kind>(name, member) for each field in order, until one call returns false.
template <std::size_t Room, class T, class Visitor>
bool walk_members(T& object, std::array<char, Room>& name, std::size_t prefix, Visitor& visit) noexcept {
  using plain = std::remove_const_t<T>;
  bool going = true;
  for_each_member<plain>([&](auto member) {
    if (!going) return;
    constexpr field_kind kind = kind_of<typename decltype(member)::template type<plain>>();
    std::memcpy(name.data() + prefix, member.name(), member.length);
    const std::size_t end = prefix + member.length;
    if constexpr (kind == field_kind::structure) {
      name[end] = '.';
      going = walk_members(member.get(object), name, end + 1, visit);
    } else {
      going = visit.template field<kind>(std::string_view(name.data(), end), member.get(object));
    }
  });
  return going;
}
template <class T, class Visitor>
bool walk_fields(T& object, Visitor& visit) noexcept {
  std::array<char, longest_name<std::remove_const_t<T>>() + 1> name;
  return walk_members(object, name, 0, visit);
}

/// An error of something inside a field: its name becomes the path to it.
inline error inside(std::string_view outer, const error& inner) noexcept {
  std::array<char, 128> path;
  std::size_t n = outer.copy(path.data(), 64);
  const std::string_view rest = inner.name.view();
  if (n != 0 && !rest.empty()) path[n++] = '.';
  n += rest.copy(path.data() + n, path.size() - n);
  return {inner.code, inner.system, inner.at, std::string_view(path.data(), n)};
}
inline error inside(std::size_t index, const error& inner) noexcept {
  return inside(tensorpull::detail::decimal(index).view(), inner);
}

/// Calls visit.field<kind>(name, value) for everything in a field: elements have no name, entries their key, a struct's
/// members theirs. False: one call did, and the name in visit.status is the path to it, without the field's own.
template <field_kind Kind, class T, class Visitor>
bool walk_inside(T& value, Visitor& visit) noexcept {
  if constexpr (Kind == field_kind::structure) {
    return walk_fields(value, visit);
  } else {
    constexpr field_kind inner = kind_of<typename holder<std::remove_const_t<T>>::element>();
    if constexpr (Kind == field_kind::optional) {
      return !value || visit.template field<inner>({}, *value);
    } else if constexpr (Kind == field_kind::entries) {
      for (auto& [key, element] : value)
        if (!visit.template field<inner>(key, element)) return false;
    } else {
      std::size_t index = 0;
      for (auto& element : value) {
        if (!visit.template field<inner>({}, element)) {
          visit.status = failure(inside(index, visit.status.error()));
          return false;
        }
        ++index;
      }
    }
    return true;
  }
}
/// Kinds that have something inside.
constexpr bool is_nested(field_kind kind) noexcept {
  return kind == field_kind::items || kind == field_kind::entries || kind == field_kind::structure;
}

}  // namespace tensorpull::detail
