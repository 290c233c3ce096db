// A difference between two versions of tensors, without loss or in few bits: made, and applied to the older one while
// it is pulled.
#pragma once

#include "network.hpp"
#include "slices.hpp"
#include "tensor_table.hpp"

#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>
#include <tensorpull/satellites/differences/applied_difference.hpp>
#include <tensorpull/satellites/differences/deflate/deflate.hpp>
#include <tensorpull/satellites/differences/widened.hpp>

#include <algorithm>
#include <utility>

namespace tensorpull::python {

/// Makes a consumer of the tensors that are described, and pulls a difference into it. Returns the receipt, of the
/// difference. A chunk is held until it is whole; longer ones than 16 MiB are applied while they come.
template <class Run, class Make>
py::tuple download_difference_to(Run run, std::string_view ref, const pull_settings& s, interruption& stop, Make make) {
  auto made = value_or_raise(make(std::min(s.chunk_bytes, std::uint64_t{16} << 20)));
  in_one_chunk<decltype(made)> to(s.native, std::move(made));
  return to_python(
      pull([&](const reference& from, const pull_options& o, chunks c) { return run(from, to, o, c); }, ref, s, stop));
}

/// Pulls a difference without loss and applies it to the tensors that are described.
template <class Run>
py::tuple download_difference(Run run, std::string_view ref, const py::sequence& described, const pull_settings& s) {
  const tensor_table table(described);
  interruption stop(s.abort);
  landing_table image(table, stop);
  deflate_coder coder;
  return download_difference_to(run, ref, s, stop, [&](std::uint64_t longest) {
    return applied_difference<deflate_coder, xxhash_digest>::make(image.destination(), coder, longest);
  });
}

/// Calls `f` with the scheme of so many bits.
template <class F>
auto with_scheme(int bits, F f) {
  if (bits == 4) return f(blocks_of_4_bits<>{});
  if (bits != 8) throw py::value_error("a step has 8 bits or 4");
  return f(blocks_of_8_bits<>{});
}

/// Pulls a step in 8 or 4 bits, and moves the tensors that are described by it: contiguous ones in the CPU's memory.
template <class Run>
py::tuple download_narrowed(Run run, std::string_view ref, const py::sequence& described, const pull_settings& s,
                            int bits) {
  const tensor_table table(described);
  interruption stop(s.abort);
  dynamic_image image = table.to_write();
  land tensors(image.destination());
  return with_scheme(bits, [&]<class Scheme>(Scheme) {
    return download_difference_to(run, ref, s, stop, [&](std::uint64_t longest) {
      return widened<land, Scheme>::make(tensors, image.source(), longest);
    });
  });
}

void bind_difference(py::module_& m);

}  // namespace tensorpull::python
