// Walks a model: a struct whose members are known, structs in it, arrays of structs, arrays of scalars. Decides which
// members are tensors, and their names. One instantiation for each type that occurs, none for each element.
#pragma once

#include <tensorpull/image/detail/array_traits.hpp>
#include <tensorpull/image/detail/static_names.hpp>
#include <tensorpull/tensors/members/members.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace tensorpull::detail {

/// Whether T has members_of.
template <class T>
inline constexpr bool is_listed = !std::is_same_v<decltype(members_of<T>), const std::nullptr_t>;

/// The members of a struct: `of<>` is a list of types, for each of which there is a member_of<>.
/// tensors/structs/raw.hpp has the table of structs that are adapted with Hana.
template <class T>
struct member_table {
  static constexpr bool is_struct = false;
};
template <class T>
using members_in = typename member_table<T>::template of<>;

template <class T>
concept struct_member = !array_traits<T>::is_array && !tensor_member<T> && member_table<T>::is_struct;

template <class T, std::size_t I>
struct listed_member {};
template <class... Members>
struct member_list {};
template <auto At>
struct member_at {};
template <class T>
  requires is_listed<T>
struct member_table<T> {
  static constexpr bool is_struct = true;
  template <std::size_t... I>
  static member_list<listed_member<T, I>...> list(std::index_sequence<I...>);
  template <class List = std::remove_const_t<decltype(members_of<T>)>>
  using of = decltype(list(std::make_index_sequence<std::tuple_size_v<List>>()));
};

/// One member of a struct: its name, its type, and how to get at it. `accessor` is for compilers to print: it names the
/// member as `&layer::weight`.
template <class Member>
struct member_of;
template <class Struct, std::size_t I>
struct member_of<listed_member<Struct, I>> {
  static constexpr const auto& one = std::get<I>(members_of<Struct>);
  using accessor = member_at<one.at>;
  static constexpr std::size_t length = one.name.size();
  static constexpr const char* name() noexcept { return one.name.data(); }
  template <class T>
  static constexpr auto& get(T& object) noexcept {
    return object.*one.at;
  }
  template <class>
  using type = typename std::remove_cvref_t<decltype(one)>::type;
};

/// Whether what adapted T has done its work.
template <class>
struct is_member_list : std::false_type {};
template <class... Members>
struct is_member_list<member_list<Members...>> : std::true_type {};
template <class T>
concept well_adapted = requires { requires is_member_list<members_in<T>>::value; };

/// Calls f(member_of<...>{}) for each member of a struct, in order.
template <class F, template <class...> class List, class... Members>
constexpr void for_each_of(std::type_identity<List<Members...>>, F& f) {
  (f(member_of<Members>{}), ...);
}
template <class T, class F>
constexpr void for_each_member(F f) {
  for_each_of(std::type_identity<members_in<T>>{}, f);
}

/// The first type in T that can be no part of a model, or void. A const member is one: a transfer writes to it.
template <class T>
struct first_unsupported {
  using type = T;
};
template <class... Candidates>
struct first_not_void {
  using type = void;
};
template <class First, class... Rest>
struct first_not_void<First, Rest...>
    : std::conditional_t<std::is_void_v<First>, first_not_void<Rest...>, std::type_identity<First>> {};
template <class T>
  requires(tensor_member<T> && !std::is_const_v<T>)
struct first_unsupported<T> {
  using type = void;
};
template <class T>
  requires(array_member<T> && !std::is_const_v<T>)
struct first_unsupported<T> : first_unsupported<typename array_traits<T>::element> {};
template <class T>
  requires(!std::is_const_v<T>) && struct_member<T> && well_adapted<T>
struct first_unsupported<T> {
  template <template <class...> class List, class... Members>
  static first_not_void<typename first_unsupported<typename member_of<Members>::template type<T>>::type...> among(
      std::type_identity<List<Members...>>);
  using type = typename decltype(among(std::type_identity<members_in<T>>{}))::type;
};

/// The same, to be printed: the accessor of the member, which compilers write as `&layer::weight`. Only used when a
/// model is refused.
template <class T>
struct named_unsupported {
  using type = T;
};
template <class Struct, class Member, class Type = typename Member::template type<Struct>>
using unsupported_member = std::conditional_t<struct_member<Type> || array_member<Type>, named_unsupported<Type>,
                                              std::type_identity<typename Member::accessor>>;
template <class T>
  requires(array_member<T>)
struct named_unsupported<T> : named_unsupported<typename array_traits<T>::element> {};
template <class T>
  requires struct_member<T> && well_adapted<T>
struct named_unsupported<T> {
  template <template <class...> class List, class... Members>
  static auto among(std::type_identity<List<Members...>>) -> first_not_void<typename std::conditional_t<
      std::is_void_v<typename first_unsupported<typename member_of<Members>::template type<T>>::type>,
      std::type_identity<void>, unsupported_member<T, member_of<Members>>>::type...>;
  using type = typename decltype(among(std::type_identity<members_in<T>>{}))::type;
};

/// Room for names, computed once for each type from its parts.
template <class T>
constexpr static_counts count_names() noexcept;
template <class T>
inline constexpr static_counts counts_of = count_names<T>();

constexpr void add_component(static_counts& sum, const static_counts& part, std::size_t length,
                             bool is_tensor) noexcept {
  const std::size_t prefix = length + (is_tensor ? 0 : 1);
  sum.tensors += part.tensors;
  sum.characters += part.characters + part.tensors * prefix;
  if (part.longest + prefix > sum.longest) sum.longest = part.longest + prefix;
  sum.listed = sum.listed || part.listed;
}

// The walks expand a struct's members in place: a lambda for each member would be one more function for the compiler,
// three times a tensor.
template <class T, template <class...> class List, class... Members>
constexpr void count_members(std::type_identity<List<Members...>>, static_counts& sum) noexcept {
  (add_component(sum, counts_of<typename member_of<Members>::template type<T>>, member_of<Members>::length,
                 tensor_member<typename member_of<Members>::template type<T>>),
   ...);
}

template <class T>
constexpr static_counts count_names() noexcept {
  static_counts sum;
  if constexpr (tensor_member<T>) {
    sum.tensors = 1;
  } else if constexpr (array_member<T>) {
    for (std::size_t i = 0, digits = 1, next = 10; i < array_traits<T>::extent; ++i) {
      if (i == next) {
        ++digits;
        next *= 10;
      }
      add_component(sum, counts_of<typename array_traits<T>::element>, digits, false);
    }
  } else {
    sum.listed = is_listed<T>;
    count_members<T>(std::type_identity<members_in<T>>{}, sum);
  }
  return sum;
}

template <class T, class Writer>
constexpr void write_names(Writer& writer) noexcept;

template <class T, class Writer, template <class...> class List, class... Members>
constexpr void write_members(std::type_identity<List<Members...>>, Writer& writer) noexcept {
  [[maybe_unused]] std::size_t mark = 0;  // unused if there are no members
  ((mark = writer.enter(member_of<Members>::name(), member_of<Members>::length),
    write_names<typename member_of<Members>::template type<T>>(writer), writer.leave(mark)),
   ...);
}

/// Writes the names and types of T's tensors.
template <class T, class Writer>
constexpr void write_names(Writer& writer) noexcept {
  if constexpr (tensor_member<T>) {
    writer.leaf(dtype_of<typename array_traits<T>::scalar>::value, array_traits<T>::rank, shape_of<T>.data(),
                tensor_bytes<T>());
  } else if constexpr (array_member<T>) {
    for (std::size_t i = 0; i < array_traits<T>::extent; ++i) {
      const std::size_t mark = writer.enter(i);
      write_names<typename array_traits<T>::element>(writer);
      writer.leave(mark);
    }
  } else {
    write_members<T>(std::type_identity<members_in<T>>{}, writer);
  }
}

template <class T>
constexpr auto names_of() noexcept {
  constexpr static_counts counts = counts_of<T>;
  name_writer<counts.tensors, counts.characters, counts.longest> writer;
  write_names<T>(writer);
  return writer.names();
}

template <class T, class F>
void for_each_address(const T& value, F& f) noexcept;

template <class T, class F, template <class...> class List, class... Members>
void for_each_address_of(std::type_identity<List<Members...>>, const T& value, F& f) noexcept {
  (for_each_address(member_of<Members>::get(value), f), ...);
}

/// Calls f(address) for each tensor of an object, in the order of write_names.
template <class T, class F>
void for_each_address(const T& value, F& f) noexcept {
  if constexpr (tensor_member<T>) {
    f(reinterpret_cast<std::uintptr_t>(&value));
  } else if constexpr (array_member<T>) {
    for (std::size_t i = 0; i < array_traits<T>::extent; ++i) for_each_address(value[i], f);
  } else {
    for_each_address_of(std::type_identity<members_in<T>>{}, value, f);
  }
}

}  // namespace tensorpull::detail
