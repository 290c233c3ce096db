#include "difference.hpp"

#include <tensorpull/satellites/differences/narrowed.hpp>

#include <memory>
#include <optional>

namespace tensorpull::python {
namespace {

/// Keeps the coded bytes.
struct coded {
  model_difference made;
};

/// What becomes of the tensors of `from` in `to`: (description, no metadata, what keeps it alive), to be published;
/// None: it would be longer than `worth` of them. The lock is released; Ctrl-C is heard.
py::object encode_difference(const py::sequence& from, const py::sequence& to, double worth) {
  device_reader devices, other_devices;
  const dynamic_image old = other_devices.image_of(tensor_table(from), {}),
                      now = devices.image_of(tensor_table(to), {});
  interruption stop{py::none()};
  const auto most = static_cast<std::uint64_t>(static_cast<double>(now.schema().data_bytes()) * worth);
  auto made = [&] {
    const interpreter_unlock unlocked;
    devices.copies()->tell(&stop);
    other_devices.copies()->tell(&stop);
    deflate_coder coder;
    auto difference = model_difference::make<deflate_coder, xxhash_digest>(old.source(), now.source(), coder, most,
                                                                           interruption_token{&stop});
    devices.copies()->tell(nullptr);
    other_devices.copies()->tell(nullptr);
    return difference;
  }();
  stop.rethrow();
  if (!made && made.error() == errc::too_large) return py::none();
  auto held = std::make_unique<coded>(coded{value_or_raise(std::move(made))});
  const std::span<const std::byte> bytes = held->made.bytes();
  py::list described, metadata;
  described.append(py::make_tuple("difference", "U8", py::make_tuple(bytes.size()), py::none(),
                                  reinterpret_cast<std::uintptr_t>(bytes.data()), 0));
  return py::make_tuple(described, metadata, py::cast(std::move(held)));
}

/// The same tensors in memory, which no image has looked at yet.
template <class View, class Address>
std::vector<View> views_of(const tensor_table& table) {
  std::vector<View> views;
  for (const tensor_row& r : table.rows()) {
    if (r.swap != 0 || !r.side.is_none()) raise(errc::unsupported_layout, r.name);
    views.push_back({r.name, r.type, r.shape, reinterpret_cast<Address>(r.address), r.strides});
  }
  return views;
}

/// Moves `base` towards `now` by a step in 8 or 4 bits, and returns it as encode_difference() does: (description,
/// metadata, what keeps it alive). Both are contiguous in the CPU's memory. The lock is released.
template <class Scheme>
py::tuple narrow(const py::sequence& now, const py::sequence& base) {
  const tensor_table model(now), to(base);
  const auto from = views_of<tensor_view, const std::byte*>(model);
  const auto moves = views_of<mutable_tensor_view, std::byte*>(to);
  auto made = [&] {
    const interpreter_unlock unlocked;
    return narrowed_step<Scheme>::make(from, moves);
  }();
  if (!made && made.error() == errc::invalid_argument)
    raise(made.error().code, made.error().name.view(),
          "a NaN, an infinity, or a difference that is too large is not narrowed");
  auto held = std::make_unique<narrowed_step<Scheme>>(value_or_raise(std::move(made)));
  const source_view step = held->image();
  py::list described, metadata;
  for (std::size_t i = 0; i < step.schema->tensor_count; ++i) {
    const tensor_entry& t = step.schema->tensors[i];
    py::tuple shape(t.rank);
    for (std::size_t k = 0; k < t.rank; ++k) shape[k] = t.shape[k];
    described.append(py::make_tuple(to_text(t.name), std::string(to_string(t.type)), shape, py::none(),
                                    reinterpret_cast<std::uintptr_t>(step.address(i)), 0));
  }
  for (const metadata_entry& pair : step.schema->pairs())
    metadata.append(py::make_tuple(to_text(pair.key), to_text(pair.value)));
  return py::make_tuple(described, metadata, py::cast(std::move(held)));
}

py::tuple narrow_tensors(const py::sequence& now, const py::sequence& base, int bits) {
  return with_scheme(bits, [&]<class Scheme>(Scheme) { return narrow<Scheme>(now, base); });
}

result<void> copy_image(const source_view& from, const destination_view& to, interruption& stop) noexcept {
  const image_schema &s = *from.schema, &into = *to.schema;
  if (s.fingerprint != into.fingerprint || s.image_bytes != into.image_bytes) return failure(errc::schema_mismatch);
  land landing(to);
  if (const auto ok = landing.begin({.image_bytes = s.image_bytes, .data_start = s.header_bytes}); !ok) return ok;
  std::array<std::byte, 256 * 1024> some;
  for (std::uint64_t at = s.header_bytes; at < s.image_bytes;) {
    if (stop.look()) return failure(errc::cancelled);
    const std::span piece(some.data(),
                          static_cast<std::size_t>(std::min<std::uint64_t>(some.size(), s.image_bytes - at)));
    if (const auto read = detail::read_range(from, at, piece); !read) return read;
    if (const auto landed = detail::land_bytes(landing, at, piece); !landed) return landed;
    at += piece.size();
  }
  return {};
}

/// Copies tensors into others of the same names, dtypes and shapes, wherever both are.
void copy_tensors(const py::sequence& from, const py::sequence& to) {
  device_reader devices;
  const dynamic_image image = devices.image_of(tensor_table(from), {});
  const tensor_table table(to);
  interruption stop{py::none()};
  landing_table into(table, stop);
  const auto done = [&]() -> result<void> {
    const interpreter_unlock unlocked;
    devices.copies()->tell(&stop);
    const auto copied = copy_image(image.source(), into.destination(), stop);
    devices.copies()->tell(nullptr);
    return copied;
  }();
  stop.rethrow();
  if (!done) raise(done.error());
}

}  // namespace

void bind_difference(py::module_& m) {
  py::class_<coded>(m, "CodedDifference");
  py::class_<narrowed_step<blocks_of_8_bits<>>>(m, "NarrowedStep");
  py::class_<narrowed_step<blocks_of_4_bits<>>>(m, "NarrowedStepIn4Bits");
  m.def("narrow_tensors", &narrow_tensors);
  m.def("encode_difference", &encode_difference);
  m.def("copy_tensors", &copy_tensors);
}

}  // namespace tensorpull::python
