// Tensors of a struct that are one tensor for the party at the other end, such as a decoder's weight that is its
// embedding's.
#pragma once

#include <tensorpull/image/static.hpp>
#include <tensorpull/tensors/members/renamed.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tensorpull {

/// Model with ties: `tied<Gpt, from_to{"lm_head.weight", "embed.weight"}>`, alias and kept name, after renaming if
/// Model is renamed<...>. Both are bound to one range of the image, under the kept name; the metadata names the alias,
/// as safetensors.torch.save_model does (it keeps the name that sorts first). Reading takes the kept tensor. Landing
/// writes that one, and `landed` copies it to the alias.
template <class Model, auto... Ties>
struct tied {};

namespace detail {

template <class Model, auto... Ties>
struct model_names<tied<Model, Ties...>> {
  using model_type = typename model_names<Model>::model_type;
  static constexpr std::array<name_change, sizeof...(Ties)> ties{
      name_change{{kept_change<Ties>.from, sizeof(Ties.from) - 1}, {kept_change<Ties>.to, sizeof(Ties.to) - 1}}...};
};

/// The index of the tensor with that name; the number of tensors if there is none.
template <const auto& Names>
constexpr std::size_t tensor_named(std::string_view name) noexcept {
  std::size_t i = 0;
  while (i < Names.count && Names.name(i) != name) ++i;
  return i;
}

/// The tie whose alias this tensor is, or the number of ties.
template <const auto& Names, const auto& Ties>
constexpr std::size_t tie_of(std::size_t tensor) noexcept {
  std::size_t t = 0;
  while (t < Ties.size() && Ties[t].from != Names.name(tensor)) ++t;
  return t;
}

template <const auto& Names, const auto& Ties>
constexpr bool all_ties_fit() noexcept {
  for (const name_change& tie : Ties) {
    const std::size_t kept = tensor_named<Names>(tie.to);
    if (tensor_named<Names>(tie.from) == Names.count || kept == Names.count || tie_of<Names, Ties>(kept) != Ties.size())
      return false;
    std::size_t said = 0;
    for (const name_change& other : Ties) said += other.from == tie.from;
    if (said != 1) return false;
  }
  return true;
}
template <const auto& Names, const auto& Ties>
constexpr bool all_ties_are_alike() noexcept {
  for (const name_change& tie : Ties) {
    const static_leaf &a = Names.leaves[tensor_named<Names>(tie.from)], &b = Names.leaves[tensor_named<Names>(tie.to)];
    if (a.type != b.type || a.rank != b.rank) return false;
    for (std::size_t d = 0; d < a.rank; ++d)
      if (a.shape[d] != b.shape[d]) return false;
  }
  return true;
}

/// The ties that fit, as an image needs them: the names without aliases, the metadata, where the tensors went.
template <const auto& Names, const auto& Ties, bool Fit>
struct tie_table {
  static constexpr std::size_t count = Fit ? Ties.size() : 0;
  static constexpr auto kept_names = [] {
    static_names<Names.count - count, Names.character_count> kept;
    for (std::size_t i = 0; i < sizeof kept.characters; ++i) kept.characters[i] = Names.characters[i];
    for (std::size_t i = 0, k = 0; i < Names.count; ++i)
      if (!Fit || tie_of<Names, Ties>(i) == Ties.size()) kept.leaves[k++] = Names.leaves[i];
    return kept;
  }();
  static constexpr auto pairs = [] {
    metadata_list<count> list;
    for (std::size_t i = 0; i < count; ++i) {  // by insertion: keys ascend
      std::size_t k = i;
      for (; k > 0 && list.at[k - 1].key > Ties[i].from; --k) list.at[k] = list.at[k - 1];
      list.at[k] = {Ties[i].from, Ties[i].to};
    }
    return list;
  }();
  /// at[i]: the position of the model's i-th tensor among kept_names; past their end for an alias.
  static constexpr auto place = [] {
    index_list<Names.count> list;
    std::uint32_t k = 0;
    for (std::size_t i = 0; i < Names.count; ++i)
      list.at[i] = Fit && tie_of<Names, Ties>(i) != Ties.size() ? static_cast<std::uint32_t>(Names.count) : k++;
    return list;
  }();
};

}  // namespace detail
}  // namespace tensorpull
