// The body of an application message back into a message struct. Nothing that arrives is believed: kinds, names,
// lengths and indices are checked one by one, and no memory is made by a claim.
#pragma once

#include <tensorpull/framing/detail/segment_table.hpp>
#include <tensorpull/image/utf8.hpp>
#include <tensorpull/messages/detail/decompose.hpp>

namespace tensorpull::detail {

inline std::string_view view_of(capnp::Text::Reader t) { return {t.begin(), t.size()}; }
inline std::span<const std::byte> view_of(capnp::Data::Reader d) {
  return {reinterpret_cast<const std::byte*>(d.begin()), d.size()};
}

/// Whether a number of one kind has exactly its value in another type.
template <class To, class From>
constexpr bool holds(From v) noexcept {
  if constexpr (std::is_same_v<To, bool>) return v == 0 || v == 1;
  else if constexpr (std::is_signed_v<From>) {
    if constexpr (std::is_signed_v<To>)
      return v >= std::numeric_limits<To>::min() && v <= std::numeric_limits<To>::max();
    else return v >= 0 && static_cast<std::uint64_t>(v) <= std::numeric_limits<To>::max();
  } else return v <= static_cast<std::uint64_t>(std::numeric_limits<To>::max());
}

template <class T>
result<void> take_struct(std::span<const reference> references, capnp::List<wire::Field>::Reader fields,
                         T& value) noexcept;

struct body_reader {
  std::span<const reference> references;
  capnp::List<wire::Field>::Reader fields;
  unsigned at = 0;
  result<void> status{};

  template <field_kind Kind, class T>
  bool field(std::string_view name, T& value) noexcept {
    result<void> took = failure(errc::missing_field);
    if (at < fields.size()) {
      const auto f = fields[at++];
      took = view_of(f.getName()) == name ? take<Kind>(f, value) : result<void>(failure(errc::unknown_field));
    }
    if (took) return true;
    status = failure(inside(name, took.error()));
    return false;
  }

 private:
  static unexpected wrong_kind() noexcept { return failure(errc::wrong_kind); }
  static unexpected out_of_range() noexcept { return failure(errc::value_out_of_range); }

  template <field_kind Kind, class T>
  result<void> take(wire::Field::Reader f, T& value) {
    if constexpr (Kind == field_kind::boolean) {
      if (!f.isBoolean()) return wrong_kind();
      value = f.getBoolean();
      return {};
    } else if constexpr (Kind == field_kind::integer) {
      return take_integer(f, value);
    } else if constexpr (Kind == field_kind::floating) {
      if (!f.isFloating()) return wrong_kind();
      const double v = f.getFloating();
      value = static_cast<T>(v);
      if (v == v && static_cast<double>(value) != v) return out_of_range();
      return {};
    } else if constexpr (Kind == field_kind::text || Kind == field_kind::characters) {
      if (!f.isText()) return wrong_kind();
      const auto text = view_of(f.getText());
      if (!is_utf8(text)) return failure(errc::value_out_of_range);
      if constexpr (Kind == field_kind::text) return assign(value, text.data(), text.size());
      else return take_characters(text, std::data(value), std::size(value));
    } else if constexpr (Kind == field_kind::optional) {
      if (f.isNothing()) {
        value.reset();
        return {};
      }
      if (!value)
        if (const auto ok = allocate([&] { value.emplace(); }); !ok) return ok;
      return take<kind_of<typename T::value_type>()>(f, *value);
    } else if constexpr (Kind == field_kind::items) {
      if (!f.isItems()) return wrong_kind();
      return take_items(f.getItems(), value);
    } else if constexpr (Kind == field_kind::entries) {
      if (!f.isEntries()) return wrong_kind();
      return take_entries(f.getEntries(), value);
    } else if constexpr (Kind == field_kind::structure) {
      if (!f.isEntries()) return wrong_kind();
      return take_struct(references, f.getEntries(), value);
    } else if constexpr (Kind == field_kind::list || Kind == field_kind::numbers) {
      if (!f.isNumbers()) return wrong_kind();
      return take_numbers<Kind>(f.getNumbers(), value);
    } else if constexpr (Kind == field_kind::locator) {
      if (!f.isLocator()) return wrong_kind();
      const auto l = f.getLocator();
      return take_locator(l.getReference(), l.getAddresses(), value);
    } else {
      if (!f.isTensors()) return wrong_kind();
      return take_set(f.getTensors(), value);
    }
  }

  template <class T>
  static result<void> take_integer(wire::Field::Reader f, T& value) {
    if constexpr (std::is_enum_v<T>) {
      std::underlying_type_t<T> v{};
      const auto ok = take_integer(f, v);
      value = static_cast<T>(v);
      return ok;
    } else if (f.isSigned()) {
      if (!holds<T>(f.getSigned())) return out_of_range();
      value = static_cast<T>(f.getSigned());
    } else if (f.isUnsigned()) {
      if (!holds<T>(f.getUnsigned())) return out_of_range();
      value = static_cast<T>(f.getUnsigned());
    } else {
      return wrong_kind();
    }
    return {};
  }
  static result<void> take_characters(std::string_view text, char* to, std::size_t room) noexcept {
    if (text.size() > room || text.find('\0') != std::string_view::npos)
      return failure(errc::value_out_of_range, text.size());
    std::memset(to, 0, room);
    if (!text.empty()) std::memcpy(to, text.data(), text.size());
    return {};
  }
  /// The only memory that a field makes: as long as the bytes that have arrived, or one element for each that has.
  template <class F>
  static result<void> allocate(F make) noexcept {
#if defined(__cpp_exceptions)
    try {
      make();
    } catch (...) {
      return failure(errc::out_of_memory);
    }
#else
    make();
#endif
    return {};
  }
  template <class T>
  static result<void> assign(T& value, const void* from, std::size_t elements) noexcept {
    const auto ok = allocate([&] { value.resize(elements); });
    if (ok && elements != 0) std::memcpy(value.data(), from, elements * sizeof(typename T::value_type));
    return ok;
  }
  /// One at a time: a count makes nothing, since what is behind it may be too short for a single element. Elements that
  /// are there stay: sets of tensors among them may have a destination.
  template <class T>
  result<void> take_items(capnp::List<wire::Field>::Reader items, T& value) {
    body_reader inner{references, items};
    for (unsigned i = 0; i < items.size(); ++i) {
      if (i == value.size())
        if (const auto ok = allocate([&] { value.emplace_back(); }); !ok) return ok;
      if (!inner.template field<kind_of<typename T::value_type>()>({}, value[i]))
        return failure(inside(i, inner.status.error()));
    }
    value.erase(value.begin() + static_cast<std::ptrdiff_t>(items.size()), value.end());
    return {};
  }
  template <class T>
  result<void> take_entries(capnp::List<wire::Field>::Reader entries, T& value) {
    T before;
    before.swap(value);
    body_reader inner{references, entries};
    for (unsigned i = 0; i < entries.size(); ++i) {
      const auto name = view_of(entries[i].getName());
      if (!is_utf8(name)) return out_of_range();
      typename T::mapped_type* to = nullptr;
      bool is_new = true;
      const auto ok = allocate([&] {
        typename T::key_type key(name);
        if (auto there = before.extract(key)) to = &value.insert(std::move(there)).position->second;
        else {
          const auto [place, made] = value.try_emplace(std::move(key));
          to = &place->second, is_new = made;
        }
      });
      if (!ok) return ok;
      if (!is_new) return failure(errc::duplicate_name, 0, name);
      if (!inner.template field<kind_of<typename T::mapped_type>()>(name, *to)) return inner.status;
    }
    return {};
  }
  template <field_kind Kind, class T>
  static result<void> take_numbers(wire::Numbers::Reader n, T& value) {
    const auto bytes = view_of(n.getElements());
    if constexpr (Kind == field_kind::numbers) {
      if (view_of(n.getDtype()) != to_string(dtype_of<typename array_traits<T>::scalar>::value)) return wrong_kind();
      if (bytes.size() != tensor_bytes<T>()) return failure(errc::value_out_of_range, bytes.size());
      if (!bytes.empty()) std::memcpy(reinterpret_cast<std::byte*>(&value), bytes.data(), bytes.size());
      return {};
    } else {
      using element = typename T::value_type;
      if (view_of(n.getDtype()) != to_string(dtype_of<element>::value)) return wrong_kind();
      if (bytes.size() % sizeof(element) != 0) return failure(errc::value_out_of_range, bytes.size());
      return assign(value, bytes.data(), bytes.size() / sizeof(element));
    }
  }
  result<void> take_locator(std::uint16_t index, capnp::List<capnp::Text>::Reader addresses, locator& value) {
    locator l;
    if (index == no_reference) {
      if (addresses.size() != 0) return failure(errc::bad_frame);
    } else {
      if (index >= references.size() || !references[index].id) return failure(errc::bad_frame, index);
      l.reference = references[index];
    }
    for (unsigned i = 0; i < addresses.size(); ++i)
      if (const auto ok = l.add(view_of(addresses[i])); !ok) return failure(ok.error().code, i);
    value = l;
    return {};
  }

  template <class M>
  result<void> take_set(wire::Tensors::Reader t, tensors_of<M>& value) {
    arrived_set set;
    set.fingerprint = t.getFingerprint();
    set.limit = t.getInlineUpTo();
    set.digest = t.getDigest();
    if (const auto ok = take_locator(t.getReference(), t.getAddresses(), set.rest); !ok) return ok;
    const auto inlined = view_of(t.getInlined());
    using tensors = typename tensors_of<M>::tensors;
    if constexpr (tensors::is_static) {
      // the schema of a run-time list is not known before it is pulled; then the same is checked
      if (set.fingerprint != tensors::schema().fingerprint) return failure(errc::schema_mismatch);
      if (inlined.size() != measure_part(tensors::schema(), set.limit, part_of_set::small).image_bytes)
        return failure(errc::schema_mismatch, inlined.size());
      if (static_cast<bool>(set.rest) != (measure_part(tensors::schema(), set.limit, part_of_set::large).tensors != 0))
        return failure(errc::schema_mismatch);
    }
    if (!inlined.empty() && digest_of(inlined) != set.digest) return failure(errc::digest_mismatch);
    if (!inlined.empty()) {
      set.inlined.reset(new (std::nothrow) std::byte[inlined.size()]);
      if (set.inlined == nullptr) return failure(errc::out_of_memory);
      std::memcpy(set.inlined.get(), inlined.data(), inlined.size());
      set.inlined_bytes = inlined.size();
    }
    set_access::arrived(value) = std::move(set);
    return {};
  }
};

/// The fields of a struct, and no others.
template <class T>
result<void> take_struct(std::span<const reference> references, capnp::List<wire::Field>::Reader fields,
                         T& value) noexcept {
  body_reader visit{references, fields};
  if (!walk_fields(value, visit)) return visit.status;
  constexpr std::size_t expected = count_fields<T>();
  if (fields.size() <= expected) return {};
  const auto name = view_of(fields[static_cast<unsigned>(expected)].getName());
  return failure(errc::unknown_field, fields.size(), is_utf8(name) ? name : std::string_view{});
}

/// Reads a whole body. bad_frame: not one valid Cap'n Proto message of one segment, or an index that leads nowhere;
/// too_large: more fields than the struct has; the codes of single fields name the field.
template <class Message>
result<void> read_body(std::span<const reference> references, std::span<const std::byte> body, Message& out) noexcept {
  if (reinterpret_cast<std::uintptr_t>(body.data()) % 8 != 0) return failure(errc::invalid_argument);
  const auto measured = measure_frame(body, body.size(), 1);
  if (!measured) return failure(measured.error());
  if (!*measured || **measured != body.size()) return failure(errc::bad_frame, body.size());
  const kj::ArrayPtr<const capnp::word> segment(reinterpret_cast<const capnp::word*>(body.data() + 8),
                                                body.size() / 8 - 1);
  result<void> read{};
  const bool ok = quietly([&] {
    capnp::ReaderOptions options;
    // twice what is there: no object can be aliased into much more
    options.traversalLimitInWords = body.size() / 4 + 64;
    options.nestingLimit = 64;  // how deep it is read is decided by the struct's types
    capnp::SegmentArrayMessageReader reader(kj::arrayPtr(&segment, 1), options);
    read = take_struct(references, reader.getRoot<wire::Decomposed>().getFields(), out);
  });
  if (!ok) return failure(errc::bad_frame);
  return read;
}

}  // namespace tensorpull::detail
