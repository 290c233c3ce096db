// A message struct into the body of an application message. Two walks: one measures and refuses, the other publishes
// and writes.
#pragma once

#include <tensorpull/framing/capnp/detail/quiet_kj.hpp>
#include <tensorpull/framing/detail/payload_prefix.hpp>
#include <tensorpull/image/read_range.hpp>
#include <tensorpull/messages/detail/fields.hpp>
#include <tensorpull/protocol/owner/transaction.hpp>
#include <tensorpull/std/any.hpp>

#include <tensorpull/messages/decomposed.capnp.h>

#include <capnp/message.h>


namespace tensorpull::detail {

inline constexpr std::uint16_t no_reference = 0xffff;

/// Words of a Field, a Numbers, a Tensors, a Locator without what they point to.
inline constexpr std::uint64_t field_words = 4, numbers_words = 2, tensors_words = 6, locator_words = 2;
constexpr std::uint64_t text_words(std::uint64_t bytes) noexcept { return bytes / 8 + 1; }
constexpr std::uint64_t data_words(std::uint64_t bytes) noexcept { return (bytes + 7) / 8; }

template <class T>
std::string_view characters_of(const T& array) noexcept {
  const std::string_view all(std::data(array), std::size(array));
  return all.substr(0, all.find('\0'));
}
template <class T>
std::span<const std::byte> bytes_of_array(const T& array) noexcept {
  return {reinterpret_cast<const std::byte*>(&array), static_cast<std::size_t>(tensor_bytes<T>())};
}
template <class T>
std::span<const std::byte> bytes_of_list(const T& list) noexcept {
  return std::as_bytes(std::span(list.data(), list.size()));
}

/// First walk: how many words, how many references, and whether that fits. Publishes nothing.
template <class Limits>
struct body_measure {
  std::uint64_t inline_up_to;
  std::uint64_t words = 1 + 1 + 1 + 1;  ///< segment table, root pointer, the list's pointer and tag
  std::size_t references = 0, published = 0;  ///< `published`: those to what is published for this message
  result<void> status{};

  template <field_kind Kind, class T>
  bool field(std::string_view name, const T& value) noexcept {
    if constexpr (Kind == field_kind::optional)
      if (value) return this->template field<kind_of<typename T::value_type>()>(name, *value);
    words += field_words + (name.empty() ? 0 : text_words(name.size()));
    if constexpr (is_nested(Kind)) {
      ++words;  // the list's tag
      if (!walk_inside<Kind>(value, *this)) {
        status = failure(inside(name, status.error()));
        return false;
      }
    } else if constexpr (Kind == field_kind::text) words += text_words(value.size());
    else if constexpr (Kind == field_kind::characters) words += text_words(characters_of(value).size());
    else if constexpr (Kind == field_kind::list)
      words += numbers_words + text_words(8) + data_words(value.size() * sizeof(typename T::value_type));
    else if constexpr (Kind == field_kind::numbers)
      words += numbers_words + text_words(8) + data_words(tensor_bytes<T>());
    else if constexpr (Kind == field_kind::locator) {
      if (!value && value.addresses() != 0)
        return refuse(errc::invalid_argument, name);  // what should be pulled there?
      words += locator_words + addresses(value);
      references += value ? 1 : 0;
    } else if constexpr (Kind == field_kind::tensors)
      if (const auto ok = set(value); !ok) return refuse(ok.error().code, name);
    // wrapping is not possible: every term is the size of something in memory, and the sum is compared after each
    if (words * 8 > Limits::application_body_bytes) return refuse(errc::does_not_fit, name);
    if (references > Limits::application_references) return refuse(errc::does_not_fit, name);
    return true;
  }

 private:
  bool refuse(errc why, std::string_view name) noexcept {
    status = failure(why, words * 8, name);
    return false;
  }
  static std::uint64_t addresses(const locator& l) noexcept {
    std::uint64_t n = 0;
    for (std::size_t i = 0; i < l.addresses(); ++i) n += 1 + text_words(l.address(i).size());
    return n;
  }
  template <class M>
  result<void> set(const tensors_of<M>& s) noexcept {
    words += tensors_words;
    if (const auto* const model = set_access::model(s)) {
      const source_view whole = tensors_of<M>::tensors::source(*model);
      words += data_words(measure_part(*whole.schema, inline_up_to, part_of_set::small).image_bytes);
      const bool publishes = measure_part(*whole.schema, inline_up_to, part_of_set::large).tensors != 0;
      references += publishes;
      published += publishes;
      return {};
    }
    const auto& arrived = set_access::arrived(s);
    if (!arrived) return failure(errc::invalid_argument);  // a set to send that holds nothing
    if (arrived->rest && arrived->rest.addresses() == 0)
      return failure(errc::invalid_argument);  // nobody could be asked for it
    words += data_words(arrived->inlined_bytes) + addresses(arrived->rest);
    references += arrived->rest ? 1 : 0;
    return {};
  }
};

/// Second walk: writes into a builder that has room, and publishes large tensors with `owner` as it meets them.
template <class Owner, class References>
struct body_writer {
  Owner& owner;
  const publish_options& options;
  std::uint64_t inline_up_to;
  References& references;  ///< add(reference, published here)
  capnp::List<wire::Field>::Builder fields;
  unsigned at = 0;
  result<void> status{};

  template <field_kind Kind, class T>
  bool field(std::string_view name, const T& value) noexcept {
    if constexpr (Kind == field_kind::optional)
      if (value) return this->template field<kind_of<typename T::value_type>()>(name, *value);
    auto f = fields[at++];
    if (!name.empty()) put_text(f.initName(static_cast<unsigned>(name.size())), name);
    if constexpr (Kind == field_kind::boolean) f.setBoolean(value);
    else if constexpr (Kind == field_kind::optional) f.setNothing();
    else if constexpr (Kind == field_kind::structure)
      return put_inside<Kind>(f.initEntries(static_cast<unsigned>(count_fields<T>())), name, value);
    else if constexpr (Kind == field_kind::entries)
      return put_inside<Kind>(f.initEntries(static_cast<unsigned>(value.size())), name, value);
    else if constexpr (Kind == field_kind::items)
      return put_inside<Kind>(f.initItems(static_cast<unsigned>(value.size())), name, value);
    else if constexpr (Kind == field_kind::integer) {
      if constexpr (std::is_enum_v<T>) put_integer(f, static_cast<std::underlying_type_t<T>>(value));
      else put_integer(f, value);
    } else if constexpr (Kind == field_kind::floating) f.setFloating(static_cast<double>(value));
    else if constexpr (Kind == field_kind::text) put_text(f.initText(static_cast<unsigned>(value.size())), value);
    else if constexpr (Kind == field_kind::characters)
      put_text(f.initText(static_cast<unsigned>(characters_of(value).size())), characters_of(value));
    else if constexpr (Kind == field_kind::list)
      put_numbers(f.initNumbers(), dtype_of<typename T::value_type>::value, bytes_of_list(value));
    else if constexpr (Kind == field_kind::numbers)
      put_numbers(f.initNumbers(), dtype_of<typename array_traits<T>::scalar>::value, bytes_of_array(value));
    else if constexpr (Kind == field_kind::locator) {
      auto l = f.initLocator();
      l.setReference(value ? references.add(value.reference, false) : no_reference);
      put_addresses(l, value);
    } else if (const auto ok = put_set(f.initTensors(), value); !ok) {
      error why = ok.error();
      if (why.name.empty()) why.name = name;
      status = failure(why);
      return false;
    }
    return true;
  }

 private:
  template <field_kind Kind, class T>
  bool put_inside(capnp::List<wire::Field>::Builder inner, std::string_view name, const T& value) noexcept {
    body_writer writer{owner, options, inline_up_to, references, inner};
    if (walk_inside<Kind>(value, writer)) return true;
    status = failure(inside(name, writer.status.error()));
    return false;
  }
  static void put_text(capnp::Text::Builder to, std::string_view from) {
    if (!from.empty()) std::memcpy(to.begin(), from.data(), from.size());
  }
  template <class I>
  static void put_integer(wire::Field::Builder f, I value) {
    if constexpr (std::is_same_v<I, bool>) f.setUnsigned(value ? 1 : 0);
    else if constexpr (std::is_signed_v<I>) f.setSigned(value);
    else f.setUnsigned(value);
  }
  static void put_numbers(wire::Numbers::Builder n, dtype type, std::span<const std::byte> bytes) {
    const std::string_view name = to_string(type);
    put_text(n.initDtype(static_cast<unsigned>(name.size())), name);
    auto to = n.initElements(static_cast<unsigned>(bytes.size()));
    if (!bytes.empty()) std::memcpy(to.begin(), bytes.data(), bytes.size());
  }
  template <class Builder>
  static void put_addresses(Builder& to, const locator& l) {
    if (l.addresses() == 0) return;
    auto list = to.initAddresses(static_cast<unsigned>(l.addresses()));
    for (unsigned i = 0; i < list.size(); ++i)
      put_text(list.init(i, static_cast<unsigned>(l.address(i).size())), l.address(i));
  }

  template <class M>
  result<void> put_set(wire::Tensors::Builder to, const tensors_of<M>& s) noexcept {
    to.setReference(no_reference);
    if (const auto* const model = set_access::model(s))
      return put_model<typename tensors_of<M>::tensors>(to, *model, set_access::kept(s));
    const arrived_set& set = *set_access::arrived(s);
    to.setFingerprint(set.fingerprint);
    to.setInlineUpTo(set.limit);
    to.setDigest(set.digest);
    if (set.inlined_bytes != 0)
      std::memcpy(to.initInlined(static_cast<unsigned>(set.inlined_bytes)).begin(), set.inlined.get(),
                  set.inlined_bytes);
    if (set.rest) to.setReference(references.add(set.rest.reference, false));
    put_addresses(to, set.rest);
    return {};
  }
  template <class Tensors, class Model, class Kept>
  result<void> put_model(wire::Tensors::Builder to, const Model& model, const Kept& kept) noexcept {
    const source_view whole = Tensors::source(model);
    to.setFingerprint(whole.schema->fingerprint);
    to.setInlineUpTo(inline_up_to);
    const auto inlined = image_part::make(*whole.schema, whole.where, inline_up_to, part_of_set::small);
    if (!inlined) return failure(inlined.error());
    if (!inlined->empty()) {
      auto data = to.initInlined(static_cast<unsigned>(inlined->schema().image_bytes));
      const std::span<std::byte> bytes(reinterpret_cast<std::byte*>(data.begin()), data.size());
      if (!read_range(inlined->source(whole), 0, bytes)) return failure(errc::io);
      to.setDigest(digest_of(bytes));
    }
    auto rest = image_part::make(*whole.schema, whole.where, inline_up_to, part_of_set::large);
    if (!rest) return failure(rest.error());
    if (rest->empty()) return {};
    // what the publication reads: the part's table, and the model if it was handed over
    struct source {
      image_part part;
      Kept model;
    };
    const source_view view = rest->source(whole);
    unique_any keep;
    if (keep.keep(source{std::move(*rest), kept}) == nullptr) return failure(errc::out_of_memory);
    const auto ref = owner.add_image(view, options, std::move(keep));
    if (!ref) return failure(ref.error());
    to.setReference(references.add(*ref, true));
    return {};
  }
};

}  // namespace tensorpull::detail
