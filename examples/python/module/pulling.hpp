// The sources of a download, and its options as Python passes them.
#pragma once

#include "interruption.hpp"
#include "settings.hpp"

#include "facade/facade.hpp"


#include <tensorpull/image/schema.hpp>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tensorpull::python {

inline py::tuple to_python(const progress_event& e) {
  return py::make_tuple(std::string(to_string(e.phase)), digits_of(e.ref), e.recipient.value, e.bytes_done,
                        e.bytes_total, e.tensors_done, e.tensors_total, e.sequence, to_text(code_name(e.code)));
}
inline py::tuple to_python(const receipt& r) {
  return py::make_tuple(
      std::string(to_string(r.outcome)), r.bytes, r.chunks, r.damaged, r.version, r.fingerprint, r.digest, r.confirmed,
      to_text(r.unconfirmed_because == errc{} ? std::string_view() : code_name(r.unconfirmed_because)), r.believed);
}

/// `bytes` is what has arrived.
inline py::tuple to_python(receipt r, const facade::any_consumer& to) {
  r.bytes = to.came();
  return to_python(r);
}

/// The reference of these digits: of any version if there are 32.
inline reference reference_or_raise(std::string_view digits) {
  const auto ref = parse_reference(digits);
  if (!ref || !ref->id)
    raise(errc::invalid_argument, digits,
          "this is no reference: 48 or 32 hexadecimal digits are wanted, as add_tensors returns them");
  return *ref;
}
/// The ID of a reference's digits, of which those of its version are settled by the caller.
inline ref_id id_or_raise(std::string_view digits) { return reference_or_raise(digits).id; }

/// Where a download into tensors stands, and the metadata that had come: what has landed is that image's.
struct download_cursor : resume_cursor {
  std::vector<std::pair<std::string, std::string>> metadata{};
};

/// The bounds that a caller has set for an image.
struct most {
  std::uint64_t bytes = ~std::uint64_t{0}, header_bytes = ~std::uint64_t{0}, tensors = ~std::uint64_t{0};
};
/// A sentence for an image that is above one of these limits. `of_tensors`: `bytes` counts no header.
inline std::string above(const description& d, const most& limits, bool of_tensors = false) {
  const auto said = [](std::string_view what, std::uint64_t is, std::string_view limit, std::uint64_t most) {
    return std::string(what) + " " + std::to_string(is) + ", and " + std::string(limit) + " is " + std::to_string(most);
  };
  if (d.data_start > limits.header_bytes)
    return said("the bytes of names and shapes that are published are", d.data_start, "max_header_bytes",
                limits.header_bytes);
  const std::uint64_t bytes = d.image_bytes - (of_tensors ? d.data_start : 0);
  if (bytes > limits.bytes)
    return said(of_tensors ? "the bytes of the tensors that are published are" : "the bytes of what is published are",
                bytes, "max_bytes", limits.bytes);
  if (d.tensors > limits.tensors)
    return said("the tensors that are published are", d.tensors, "max_tensors", limits.tensors);
  return {};
}

/// Places, or the other end of a session.
class source {
 public:
  virtual ~source() = default;
  /// Pulls; called without the interpreter's lock.
  using pull_function = std::function<result<receipt>(const reference& from, facade::any_consumer& to,
                                                      const pull_options& options, std::uint64_t chunk_bytes)>;
  /// Returns the function that pulls; it holds the source as long as it is kept. Raises an error if it cannot pull.
  virtual pull_function begin() = 0;
  /// The reference that is pulled there, in digits: that which was given, or a URL's own.
  virtual std::string reference_of(std::string_view given, std::uint64_t) const { return std::string(given); }
  /// Whether it is a URL of a web server.
  virtual bool is_web() const noexcept { return false; }
};

/// Asks `agrees()` of Python's whether what has arrived is right: digest_mismatch if it is not, cancelled if it raises.
/// None: nobody is asked.
inline result<void> ask(const py::object& agrees, interruption& stop) noexcept {
  if (agrees.is_none()) return {};
  const interpreter_lock lock;
  bool right = false;
  if (!stop.guard([&] { right = agrees().cast<bool>(); })) return failure(errc::cancelled);
  return right ? result<void>() : failure(errc::digest_mismatch);
}

/// Further arguments of a pull.
struct pull_particulars {
  bool part = false;  ///< only the tensors of the destination are pulled
  std::span<const tensor_slice> slices{};  ///< as in pull_options
  std::function<const image_schema*()> described{};  ///< the schema that has come with it
  resume_cursor* cursor = nullptr;  ///< where it stands, in place of that of the settings
};
/// One pull with the interpreter's lock released: `run(reference, options)` does it. Throws what a callback or Ctrl-C
/// has thrown.
template <class Run>
auto pull_with(std::string_view ref, const pull_settings& s, interruption& stop, const pull_particulars& how, Run run) {
  const reference wanted{id_or_raise(ref), s.version, 0};
  auto tell = [&](progress_event e) {
    const image_schema* const schema = how.described ? how.described() : nullptr;
    if (schema != nullptr) count_done(e, *schema, e.bytes_done);
    const interpreter_lock lock;
    stop.guard([&] { s.tell(to_python(e)); });
  };
  pull_options options = s;
  options.part = how.part;
  options.slices = how.slices;
  options.stop = interruption_token{&stop};
  if (!s.tell.is_none()) options.progress = tell;
  options.cursor = how.cursor != nullptr || s.from.is_none() ? how.cursor : s.from.cast<download_cursor*>();
  return stop.run([&] { return run(wanted, options); });
}
inline result<receipt> try_pull(source& from, facade::any_consumer& to, std::string_view ref, const pull_settings& s,
                                interruption& stop, const pull_particulars& how = {}) {
  to.in_one_chunk = s.native;
  return pull_with(ref, s, stop, how, [&, pulls = from.begin()](const reference& wanted, const pull_options& options) {
    return pulls(wanted, to, options, s.chunk_bytes);
  });
}
/// The same, and throws tensorpull.Error.
inline receipt pull(source& from, facade::any_consumer& to, std::string_view ref, const pull_settings& s,
                    interruption& stop, const pull_particulars& how = {}) {
  const auto done = try_pull(from, to, ref, s, stop, how);
  if (!done) raise(done.error(), true);
  return *done;
}

}  // namespace tensorpull::python
