// A difference between two versions of tensors, without loss or in few bits: made, and applied to the older one while
// it is pulled.
#include "parts.hpp"
#include "pulling.hpp"
#include "slices.hpp"
#include "tensor_table.hpp"

#include <tensorpull/consumers/land.hpp>
#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>
#include <tensorpull/satellites/differences/applied_difference.hpp>
#include <tensorpull/satellites/differences/deflate/deflate.hpp>
#include <tensorpull/satellites/differences/narrowed.hpp>
#include <tensorpull/satellites/differences/widened.hpp>

#include <algorithm>
#include <memory>
#include <utility>

namespace tensorpull::python {
namespace {

/// Makes a consumer of the tensors that are described, and pulls a difference into it. Returns the receipt, of the
/// difference. A chunk is held until it is whole; longer ones than 16 MiB are applied while they come.
template <class Make>
py::tuple download_difference_to(source& from, std::string_view ref, const pull_settings& s, interruption& stop,
                                 Make make) {
  auto made = value_or_raise(make(std::min(s.chunk_bytes, std::uint64_t{16} << 20)));
  facade::consumer_for as(made);
  const receipt got = pull(from, as, ref, s, stop);
  return to_python(got, as);
}

/// Pulls a difference without loss and applies it to the tensors that are described.
py::tuple download_difference(source& from, std::string_view ref, const py::sequence& described,
                              const py::object& how) {
  const auto s = settings_of<pull_settings>(how);
  const tensor_table table(described);
  interruption stop(s.abort);
  landing_table image(table, stop);
  deflate_coder coder;
  return download_difference_to(from, ref, s, stop, [&](std::uint64_t longest) {
    return applied_difference<deflate_coder, xxhash_digest>::make(image.destination(), coder, longest);
  });
}

/// Python chooses which tensors a step has.
using in_8_bits = blocks_of_8_bits<256, all_tensors>;
using in_4_bits = blocks_of_4_bits<256, all_tensors>;

/// Calls `f` with the scheme of so many bits.
template <class F>
auto with_scheme(int bits, F f) {
  if (bits == 4) return f(in_4_bits{});
  if (bits != 8) throw py::value_error("a step has 8 bits or 4");
  return f(in_8_bits{});
}

/// Pulls a step in 8 or 4 bits, and moves the tensors that are described by it: contiguous ones in the CPU's memory.
py::tuple download_narrowed(source& from, std::string_view ref, const py::sequence& described, const py::object& how,
                            int bits) {
  const auto s = settings_of<pull_settings>(how);
  const tensor_table table(described);
  interruption stop(s.abort);
  dynamic_image image = table.to_write();
  land tensors(image.destination());
  return with_scheme(bits, [&]<class Scheme>(Scheme) {
    return download_difference_to(from, ref, s, stop, [&](std::uint64_t longest) {
      // of the others the digests of the whole's tensors tell
      return widened<land, Scheme>::make(tensors, image.source(), longest, step_base::part);
    });
  });
}

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
  deflate_coder coder;
  const auto make = [&] {
    return model_difference::make<deflate_coder, xxhash_digest>(old.source(), now.source(), coder, most,
                                                                interruption_token{&stop});
  };
  auto made = stop.run(
      [&] { return devices.copies()->within(stop, [&] { return other_devices.copies()->within(stop, make); }); });
  if (!made && made.error() == errc::too_large) return py::none();
  auto held = std::make_unique<coded>(coded{value_or_raise(std::move(made))});
  const std::span<const std::byte> bytes = held->made.bytes();
  py::list described, metadata;
  described.append(py::make_tuple("difference", "U8", py::make_tuple(bytes.size()), py::none(),
                                  reinterpret_cast<std::uintptr_t>(bytes.data()), 0));
  return py::make_tuple(described, metadata, py::cast(std::move(held)));
}

/// Moves `base` towards `now` by a step in 8 or 4 bits, and returns it as encode_difference() does: (description,
/// metadata, what keeps it alive), of the tensors that it moves. Both are contiguous in the CPU's memory. The lock is
/// released.
template <class Scheme>
py::tuple narrow(const py::sequence& now, const py::sequence& base) {
  const tensor_table model(now), to(base);
  const auto from = model.views<tensor_view, const std::byte*>();
  const auto moves = to.views<mutable_tensor_view, std::byte*>();
  interruption stop{py::none()};
  auto made = stop.run([&] { return narrowed_step<Scheme>::make(from, moves, interruption_token{&stop}); });
  if (!made && made.error() == errc::invalid_argument)
    raise(made.error().code, made.error().name.view(),
          "a NaN, an infinity, or a difference that is too large is not narrowed");
  auto held = std::make_unique<narrowed_step<Scheme>>(value_or_raise(std::move(made)));
  const source_view step = held->image();
  py::list described, metadata;
  for (std::size_t i = 0; i < step.schema->tensor_count; ++i) {
    const tensor_entry& t = step.schema->tensors[i];
    described.append(py::make_tuple(to_text(t.name), std::string(to_string(t.type)), shape_of(t), py::none(),
                                    reinterpret_cast<std::uintptr_t>(step.address(i)), 0));
  }
  for (const metadata_entry& pair : step.schema->pairs())
    metadata.append(py::make_tuple(to_text(pair.key), to_text(pair.value)));
  return py::make_tuple(described, metadata, py::cast(std::move(held)));
}

py::tuple narrow_tensors(const py::sequence& now, const py::sequence& base, int bits) {
  return with_scheme(bits, [&]<class Scheme>(Scheme) { return narrow<Scheme>(now, base); });
}

}  // namespace

void bind_difference(py::module_& m) {
  py::class_<coded>(m, "CodedDifference");
  py::class_<narrowed_step<in_8_bits>>(m, "NarrowedStep");
  py::class_<narrowed_step<in_4_bits>>(m, "NarrowedStepIn4Bits");
  m.def("narrow_tensors", &narrow_tensors);
  m.def("encode_difference", &encode_difference);
  m.def("download_difference", &download_difference);
  m.def("download_narrowed", &download_narrowed);
}

}  // namespace tensorpull::python
