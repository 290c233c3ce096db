// What a reference has: names, dtypes, shapes and metadata, without its tensors.
#pragma once

#include "pulling.hpp"
#include "tensor_table.hpp"

#include <tensorpull/consumers/any_schema/published_schema.hpp>

namespace tensorpull::python {

/// (name, dtype, shape, where it begins, bytes) each.
inline py::list described_tensors(const image_schema& schema, const auto& begin) {
  py::list out;
  for (std::size_t i = 0; i < schema.tensor_count; ++i) {
    const tensor_entry& t = schema.tensors[i];
    out.append(py::make_tuple(to_text(t.name), std::string(to_string(t.type)), shape_of(t), begin(i), t.size_bytes()));
  }
  return out;
}
/// Each begins so many bytes behind the header.
inline py::list described_tensors(const image_schema& schema) {
  return described_tensors(schema, [&](std::size_t i) { return schema.tensors[i].begin; });
}

/// Returns ((version, fingerprint, bytes of the image, bytes of its header, whether its owner has a digest of it), the
/// tensors, the metadata). It is what the owner says: no digest is compared.
inline py::tuple look(source& from, std::string_view ref, std::uint64_t max_header_bytes, std::uint64_t max_tensors,
                      const py::object& how) {
  auto s = settings_of<pull_settings>(how);
  s.window = 1;
  s.unverified = s.believe = true;
  s.native = false;
  interruption stop(s.abort);
  published_schema at(new_model_limits{0, max_header_bytes, max_tensors});
  facade::consumer_for as(at);
  const auto done = try_pull(from, as, ref, s, stop);
  const description& d = at.described();
  if (!at.complete()) {
    if (done) raise(errc::bad_frame);
    raise(done.error(), true,
          done.error() == errc::too_large ? above(as.described(), {~std::uint64_t{0}, max_header_bytes, max_tensors})
                                          : "");
  }
  return py::make_tuple(py::make_tuple(d.version, d.fingerprint, d.image_bytes, d.data_start, d.verifiable),
                        described_tensors(at.schema_of_image()), to_python(at.schema_of_image().pairs()));
}

}  // namespace tensorpull::python
