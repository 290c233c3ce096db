// What a reference has: names, dtypes, shapes and metadata, without its tensors.
#pragma once

#include "network.hpp"
#include "tensor_table.hpp"

#include <tensorpull/consumers/any_schema/published_schema.hpp>

namespace tensorpull::python {

using looking = in_one_chunk<published_schema>;

/// (name, dtype, shape, offset behind the header, bytes) each.
inline py::list described_tensors(const image_schema& schema) {
  py::list out;
  for (std::size_t i = 0; i < schema.tensor_count; ++i) {
    const tensor_entry& t = schema.tensors[i];
    py::tuple shape(t.rank);
    for (std::size_t k = 0; k < t.rank; ++k) shape[k] = t.shape[k];
    out.append(py::make_tuple(to_text(t.name), std::string(to_string(t.type)), shape, t.begin, t.size_bytes()));
  }
  return out;
}

/// Returns ((version, fingerprint, bytes of the image, bytes of its header, whether its owner has a digest of it), the
/// tensors, the metadata). It is what the owner says: no digest is compared.
template <class Run>
py::tuple look(Run run, std::string_view ref, const most& limits, pull_settings s) {
  s.window = 1;
  s.unverified = s.believe = true;
  interruption stop(s.abort);
  looking at(false, new_model_limits{0, limits.header_bytes, limits.tensors});
  const auto done = try_pull(
      [&](const reference& from, const pull_options& o, chunks c) { return run(from, at, o, c); }, ref, s, stop);
  if (!at.complete()) {
    if (done) raise(errc::bad_frame);
    raise(done.error(), true, done.error() == errc::too_large ? above(at.described(), limits) : "");
  }
  const description& d = at.described();
  return py::make_tuple(py::make_tuple(d.version, d.fingerprint, d.image_bytes, d.data_start, d.verifiable),
                        described_tensors(at.schema_of_image()), to_python(at.schema_of_image().pairs()));
}

}  // namespace tensorpull::python
