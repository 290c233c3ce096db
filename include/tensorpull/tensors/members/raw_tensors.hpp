// The tensors of a plain struct: the policy for models whose shape the compiler knows.
//
// The schema is a constant. Addresses are offsets from the object, the same for every object of a type, so one table of
// them serves the whole program: 8 bytes a tensor, filled from the first object seen (g++ cannot take the offset of a
// member as a constant), and right for structs that have other members besides the adapted ones.
#pragma once

#include <tensorpull/image/static.hpp>
#include <tensorpull/image/view.hpp>
#include <tensorpull/tensors/members/detail/model_walk.hpp>
#include <tensorpull/tensors/members/renamed.hpp>
#include <tensorpull/tensors/members/tied.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tensorpull {

namespace detail {

/// False for a member that is no tensor: compilers then print the pointer to it (struct, name and type) next to the
/// message.
template <class FirstUnsupported>
inline constexpr bool all_are_tensors = std::is_void_v<FirstUnsupported>;
/// False for a struct in whose BOOST_HANA_ADAPT_STRUCT something is wrong.
template <class FirstUnsupported>
concept every_name_is_a_member = !struct_member<FirstUnsupported> || well_adapted<FirstUnsupported>;

/// The names of a model's tensors, and the requirements on them. A refused model has none, so that the refusal is the
/// only error.
template <class Argument, bool Accepted>
struct tensor_names {
  static constexpr static_names<0, 0> final_names{};
};
template <class Model>
struct tensor_names<Model, true> {
  static constexpr auto final_names = names_of<Model>();
  static_assert(!has_reserved_name<final_names>(), "tensorpull: a tensor may not be named __metadata__");
  static_assert(!counts_of<Model>.listed || names_are_utf8<final_names>(),
                "tensorpull: the name of a tensor is not valid UTF-8");
  static constexpr bool has_twice = [] {
    if constexpr (counts_of<Model>.listed) return has_duplicate_names<final_names>();
    else return false;
  }();
  static_assert(!has_twice, "tensorpull: two tensors of the model have the same name");
};
template <class Model, auto... Changes>
struct tensor_names<renamed<Model, Changes...>, true> {
  static constexpr const auto& own_names = tensor_names<Model, true>::final_names;
  static constexpr const auto& changes = model_names<renamed<Model, Changes...>>::changes;
  static constexpr auto final_names = change_names<own_names, changes>();
  static_assert(all_changes_fit<own_names, changes>(),
                "tensorpull: renamed: an old name is neither the name of a tensor nor the leading components of one");
  static_assert(all_utf8<changes>(), "tensorpull: renamed: a new name is not valid UTF-8");
  static_assert(!has_duplicate_names<final_names>(), "tensorpull: renamed: two tensors have the same new name");
  static_assert(!has_reserved_name<final_names>(), "tensorpull: a tensor may not be named __metadata__");
};

template <class Model, auto... Ties>
struct tensor_names<tied<Model, Ties...>, true> {
  static constexpr const auto& all_names = tensor_names<Model, true>::final_names;
  static constexpr const auto& all_ties = model_names<tied<Model, Ties...>>::ties;
  static constexpr bool fit = all_ties_fit<all_names, all_ties>();
  static_assert(fit,
                "tensorpull: tied: an alias or a kept name is not the name of a tensor, or a tensor is tied twice");
  static constexpr bool alike = [] {
    if constexpr (fit) return all_ties_are_alike<all_names, all_ties>();
    else return true;
  }();
  static_assert(alike, "tensorpull: tied: two tensors that are tied have different dtypes or shapes");
  using ties = tie_table<all_names, all_ties, fit>;
  static constexpr const auto& final_names = ties::kept_names;
};

/// The metadata of a model: its ties, or nothing if it has none.
template <class Names>
constexpr const auto& metadata_of() noexcept {
  if constexpr (requires { typename Names::ties; }) return Names::ties::pairs;
  else return no_metadata;
}

template <std::size_t N>
struct offset_table {
  std::uintptr_t at[N == 0 ? 1 : N]{};
};

}  // namespace detail

/// The tensor policy for a struct that is adapted with BOOST_HANA_ADAPT_STRUCT (tensors/structs/raw.hpp) or has
/// members_of, or renamed<Struct, ...>, tied<Struct, ...>, or an array of structs. Members are scalars, arrays of
/// scalars of any rank (one tensor each), such structs and arrays of them (dotted names, `layers.0.w`).
template <class Model>
struct raw_tensors {
  using is_tensor_policy = void;
  using model_type = typename detail::model_names<Model>::model_type;
  static constexpr bool is_static = true;

  /// Constant, except for the header's text, which is written when it is asked for.
  static constexpr const image_schema& schema() noexcept { return image::schema; }

  /// The object is borrowed: it outlives the view.
  static source_view source(const model_type& model) noexcept {
    return {&image::schema, reinterpret_cast<const std::byte*>(&model), offsets(model)};
  }
  static destination_view destination(model_type& model) noexcept {
    destination_view to{&image::schema, reinterpret_cast<std::byte*>(&model), offsets(model)};
    if constexpr (has_ties) to.landed = copy_to_aliases;
    return to;
  }
  static source_view source(const model_type&&) = delete;

 private:
  template <class>
  friend struct embedded_image;  // embedded/image.hpp
  static constexpr bool is_model = detail::struct_member<model_type> || detail::array_member<model_type>;
  static_assert(
      is_model,
      "tensorpull: a model is a struct adapted with BOOST_HANA_ADAPT_STRUCT (at most 39 members: nest structs for more) or one that has members_of, "
      "or an array of such structs, so that every tensor has a name");
  using unsupported =
      typename std::conditional_t<is_model, detail::first_unsupported<model_type>, std::type_identity<void>>::type;
  static_assert(
      detail::every_name_is_a_member<unsupported>,
      "tensorpull: BOOST_HANA_ADAPT_STRUCT of this struct names something that is not one of its members: correct the name");
  static constexpr bool adapted = detail::every_name_is_a_member<unsupported>;
  static_assert(
      detail::all_are_tensors<
          typename std::conditional_t<std::is_void_v<unsupported> || !adapted, std::type_identity<void>,
                                      detail::named_unsupported<model_type>>::type>,
      "tensorpull: a member of the model is neither a scalar, an array of scalars nor an adapted struct, or it is const: "
      "change its type, leave it out of the list of members, or use tensor_list, which takes views of any memory "
      "(what a pointer or a std::vector leads to)");
  static constexpr bool accepted = is_model && detail::all_are_tensors<unsupported>;
  using names = detail::tensor_names<Model, accepted>;
  using image = detail::static_image<names::final_names, detail::metadata_of<names>()>;
  static constexpr bool has_ties = requires { typename names::ties; };

  static const std::uintptr_t* offsets(const model_type& model) noexcept {
    static const auto table = [&model] {
      detail::offset_table<image::count> made;
      if constexpr (accepted) {
        const auto base = reinterpret_cast<std::uintptr_t>(&model);
        auto put = [&made, base, k = std::size_t{0}](std::uintptr_t address) mutable {
          std::size_t place = k++;
          if constexpr (has_ties) place = names::ties::place.at[place];
          if (place < image::count) made.at[image::rank.at[place]] = address - base;
        };
        detail::for_each_address(model, put);
      }
      return made;
    }();
    return table.at;
  }

  /// Copies each tensor that has landed to those tied to it: one range of an image lands once.
  static void copy_to_aliases(const destination_view& here) noexcept {
    auto& model = *reinterpret_cast<model_type*>(here.base);
    static const auto table = [&model] {
      detail::offset_table<2 * names::ties::count> made;
      const auto base = reinterpret_cast<std::uintptr_t>(&model);
      auto put = [&made, base, k = std::size_t{0}](std::uintptr_t address) mutable {
        for (std::size_t t = 0; t < names::ties::count; ++t) {
          if (names::all_names.name(k) == names::all_ties[t].from) made.at[2 * t] = address - base;
          if (names::all_names.name(k) == names::all_ties[t].to) made.at[2 * t + 1] = address - base;
        }
        ++k;
      };
      detail::for_each_address(model, put);
      return made;
    }();
    for (std::size_t t = 0; t < names::ties::count; ++t)
      std::memcpy(here.base + table.at[2 * t], here.base + table.at[2 * t + 1],
                  static_cast<std::size_t>(
                      names::all_names.leaves[detail::tensor_named<names::all_names>(names::all_ties[t].to)].bytes));
  }
};

}  // namespace tensorpull
