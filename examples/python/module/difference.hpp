// A difference between two versions of tensors, without loss or in 8 bits: made, and applied to the older one while it
// is pulled.
#pragma once

#include "network.hpp"
#include "slices.hpp"
#include "tensor_table.hpp"

#include <tensorpull/differences/applied_difference.hpp>
#include <tensorpull/differences/deflate/deflate.hpp>
#include <tensorpull/differences/widened.hpp>
#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>

#include <algorithm>

namespace tensorpull::python {

using applying = in_one_chunk<applied_difference<deflate_coder, xxhash_digest>>;

/// Pulls a difference and applies it to the tensors that are described. Returns the receipt, of the difference.
template <class Run>
py::tuple download_difference(Run run, std::string_view ref, const py::sequence& described, const pull_settings& s) {
  const tensor_table table(described);
  interruption stop(s.abort);
  landing_table image(table, stop);
  deflate_coder coder;
  // a chunk is held until it is whole; longer ones than this are applied while they come
  constexpr std::uint64_t most = std::uint64_t{16} << 20;
  applying to(s.native, value_or_raise(applied_difference<deflate_coder, xxhash_digest>::make(
                            image.destination(), coder, std::min(s.chunk_bytes, most))));
  return to_python(
      pull([&](const reference& from, const pull_options& o, chunks c) { return run(from, to, o, c); }, ref, s, stop));
}

using moving = in_one_chunk<widened<land>>;

/// Pulls a step in 8 bits, and moves the tensors that are described by it: contiguous ones in the CPU's memory. Returns
/// the receipt, of the step.
template <class Run>
py::tuple download_narrowed(Run run, std::string_view ref, const py::sequence& described, const pull_settings& s) {
  const tensor_table table(described);
  interruption stop(s.abort);
  dynamic_image image = table.to_write();
  land tensors(image.destination());
  constexpr std::uint64_t most = std::uint64_t{16} << 20;
  moving to(s.native, value_or_raise(widened<land>::make(tensors, image.source(), std::min(s.chunk_bytes, most))));
  return to_python(
      pull([&](const reference& from, const pull_options& o, chunks c) { return run(from, to, o, c); }, ref, s, stop));
}

void bind_difference(py::module_& m);

}  // namespace tensorpull::python
