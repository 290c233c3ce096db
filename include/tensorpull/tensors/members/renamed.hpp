// Other names for the tensors of a model: those that the party at the other end uses, such as torch's Sequential.
#pragma once

#include <tensorpull/image/static.hpp>
#include <tensorpull/image/utf8.hpp>

#include <array>
#include <cstddef>
#include <string_view>

namespace tensorpull {

/// One change of names: a whole name, or the leading components of names ("l0" stands for "l0.weight" and "l0.bias").
template <std::size_t N, std::size_t M>
struct from_to {
  char from[N]{};  ///< The old name, zero-terminated.
  char to[M]{};  ///< The new name, zero-terminated.
  /// Copies two string literals.
  constexpr from_to(const char (&old_name)[N], const char (&new_name)[M]) noexcept {
    for (std::size_t i = 0; i < N; ++i) from[i] = old_name[i];
    for (std::size_t i = 0; i < M; ++i) to[i] = new_name[i];
  }
};

/// Model with other names: `renamed<Mlp, from_to{"l0", "0"}, from_to{"l1", "2"}>`. Never an object: a name for a
/// policy's argument, whose model_type stays Model. The first change that fits a tensor applies, once. Each must fit at
/// least one tensor.
template <class Model, auto... Changes>
struct renamed {};

namespace detail {

struct name_change {
  std::string_view from, to;

  constexpr bool fits(std::string_view name) const noexcept {
    return name.size() >= from.size() && name.substr(0, from.size()) == from &&
           (name.size() == from.size() || name[from.size()] == '.');
  }
};

template <auto Change>
inline constexpr auto kept_change = Change;

/// The model behind a policy's argument, and the changes to its names.
template <class Model>
struct model_names {
  using model_type = Model;
  static constexpr std::array<name_change, 0> changes{};
};
template <class Model, auto... Changes>
struct model_names<renamed<Model, Changes...>> {
  using model_type = Model;
  static constexpr std::array<name_change, sizeof...(Changes)> changes{name_change{
      {kept_change<Changes>.from, sizeof(Changes.from) - 1}, {kept_change<Changes>.to, sizeof(Changes.to) - 1}}...};
};

template <const auto& Names, const auto& Changes>
constexpr std::size_t first_change(std::size_t tensor) noexcept {
  std::size_t c = 0;
  while (c < Changes.size() && !Changes[c].fits(Names.name(tensor))) ++c;
  return c;
}

template <const auto& Names, const auto& Changes>
constexpr std::size_t changed_characters() noexcept {
  std::size_t n = Names.character_count;
  for (std::size_t i = 0; i < Names.count; ++i)
    if (const std::size_t c = first_change<Names, Changes>(i); c < Changes.size())
      n = n + Changes[c].to.size() - Changes[c].from.size();
  return n;
}

template <const auto& Names, const auto& Changes>
constexpr auto change_names() noexcept {
  static_names<Names.count, changed_characters<Names, Changes>()> changed;
  std::uint32_t used = 0;
  for (std::size_t i = 0; i < Names.count; ++i) {
    std::string_view rest = Names.name(i);
    const std::uint32_t begin = used;
    if (const std::size_t c = first_change<Names, Changes>(i); c < Changes.size()) {
      for (const char character : Changes[c].to) changed.characters[used++] = character;
      rest.remove_prefix(Changes[c].from.size());
    }
    for (const char character : rest) changed.characters[used++] = character;
    changed.leaves[i] = Names.leaves[i];
    changed.leaves[i].name_begin = begin;
    changed.leaves[i].name_length = used - begin;
  }
  return changed;
}

/// Whether every change fits a tensor.
template <const auto& Names, const auto& Changes>
constexpr bool all_changes_fit() noexcept {
  for (const name_change& change : Changes) {
    bool found = false;
    for (std::size_t i = 0; i < Names.count && !found; ++i) found = change.fits(Names.name(i));
    if (!found) return false;
  }
  return true;
}

template <const auto& Changes>
constexpr bool all_utf8() noexcept {
  for (const name_change& change : Changes)
    if (!is_utf8(change.to)) return false;
  return true;
}

template <const auto& Names>
constexpr bool names_are_utf8() noexcept {
  for (std::size_t i = 0; i < Names.count; ++i)
    if (!is_utf8(Names.name(i))) return false;
  return true;
}

template <const auto& Names>
constexpr bool has_reserved_name() noexcept {
  for (std::size_t i = 0; i < Names.count; ++i)
    if (Names.leaves[i].name_length == 12 && Names.name(i) == "__metadata__") return true;
  return false;
}

}  // namespace detail

}  // namespace tensorpull
