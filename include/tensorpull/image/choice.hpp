// Some tensors of a destination, chosen by name, by prefix or by pattern: an image of their own in the same memory.
#pragma once

#include <tensorpull/image/dynamic.hpp>

#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <string_view>

namespace tensorpull {

/// Which tensors: those that any of the three chooses. Borrows all text.
struct tensor_choice {
  std::span<const std::string_view> names{};     ///< exactly these
  std::span<const std::string_view> prefixes{};  ///< those whose names begin so
  std::span<const std::string_view> patterns{};  ///< those whose names fit; see fits_pattern()
};

/// Whether all of a name fits a pattern: `*` stands for any characters, or none, and `?` for one character of UTF-8.
/// Dots are characters like others, and no character is escaped: a name that has one of the two itself is chosen by
/// tensor_choice::names. Cost: the product of both lengths at most.
constexpr bool fits_pattern(std::string_view name, std::string_view pattern) noexcept {
  const auto behind = [name](std::size_t i) {  // the character that begins at i
    do ++i;
    while (i < name.size() && (static_cast<unsigned char>(name[i]) & 0xc0) == 0x80);
    return i;
  };
  constexpr std::size_t none = ~std::size_t{0};
  std::size_t n = 0, p = 0, star = none, resumes = 0;  // the last `*`, and where in the name its text would end now
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resumes = n;
    } else if (p < pattern.size() && pattern[p] == '?') {
      n = behind(n);
      ++p;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++n;
      ++p;
    } else if (star != none) {
      p = star + 1;
      n = resumes = behind(resumes);
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

/// Whether a name is chosen.
constexpr bool chooses(const tensor_choice& choice, std::string_view name) noexcept {
  for (const std::string_view n : choice.names)
    if (n == name) return true;
  for (const std::string_view p : choice.prefixes)
    if (name.starts_with(p)) return true;
  for (const std::string_view p : choice.patterns)
    if (fits_pattern(name, p)) return true;
  return false;
}

/// The chosen tensors of a destination as an image of their own, in the same memory, to be pulled with
/// pull_options::part. Names and shapes are copied; memory and writer are borrowed. The destination's
/// destination_view::landed is not called for it, so of a tied<> struct the aliases keep what they had. It allocates
/// the image's table, and a list of 72 bytes a tensor while it makes that. Errors: invalid_argument, named: a name, a
/// prefix or a pattern that chooses no tensor; unsupported_dtype, named: a member of type `bool`, which nobody would
/// look after; out_of_memory; those of dynamic_image::make.
[[nodiscard]] inline result<dynamic_image> part_of(const destination_view& all, const tensor_choice& choice) noexcept {
  const image_schema& schema = *all.schema;
  for (const auto& [texts, as] : {std::pair{choice.names, &tensor_choice::names},
                                  {choice.prefixes, &tensor_choice::prefixes},
                                  {choice.patterns, &tensor_choice::patterns}})
    for (const std::string_view& text : texts) {
      tensor_choice alone;
      alone.*as = {&text, 1};
      std::size_t i = 0;
      while (i < schema.tensor_count && !chooses(alone, schema.tensors[i].name)) ++i;
      if (i == schema.tensor_count) return failure(errc::invalid_argument, 0, text);
    }
  const std::unique_ptr<mutable_tensor_view[]> chosen(new (std::nothrow) mutable_tensor_view[schema.tensor_count + 1]);
  if (chosen == nullptr) return failure(errc::out_of_memory);
  std::size_t count = 0;
  for (std::size_t i = 0; i < schema.tensor_count; ++i) {
    const tensor_entry& t = schema.tensors[i];
    if (!chooses(choice, t.name)) continue;
    if (schema.of_members && t.type == dtype::boolean) return failure(errc::unsupported_dtype, 0, t.name);
    chosen[count++] = {t.name, t.type, t.extents(), all.address(i), {}, t.indirect};
  }
  return dynamic_image::make(std::span<const mutable_tensor_view>(chosen.get(), count), {},
                             all.writer != nullptr ? *all.writer : destination_writer{});
}

}  // namespace tensorpull
