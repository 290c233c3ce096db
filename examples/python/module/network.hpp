// The pipelines of the module, and a pull's options as Python passes them.
#pragma once

#include "interruption.hpp"

#include <tensorpull/chunking/policies.hpp>
#include <tensorpull/protocol/owner/owner_room.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/tensor_list.hpp>

#include <type_traits>

namespace tensorpull::python {

struct module_limits : default_limits {
  using owner_room = heap_owner_room;  // as many references as Downloader(max_references=...) says
  static constexpr std::uint64_t chunk_cap_bytes = max_payload_bytes;
  static constexpr std::size_t references = 512;
  // Long lines: 16 chunks ahead over a stream, which are 640 bytes of an owner's connection, and datagrams on their way
  // for which a thread of Python's has the 210 KiB.
  static constexpr std::size_t pipelined_requests = 16, window = 32'768;
};
using chunks = bytes_up_to<max_payload_bytes>;

/// Transports have a lock, so that one Python thread can publish while another serves.
template <class Transport>
using net = pipeline<tensor_list, chunks, Transport, module_limits>;
/// An average cannot undo an addition, so each chunk has its own digest.
template <class Transport>
using averaging_net = pipeline<tensor_list, chunks, Transport, chunk_and_image_digest, module_limits>;
/// That of the two which a consumer needs.
template <class Transport, class Consumer>
using net_into = std::conditional_t<Consumer::irrevocable, averaging_net<Transport>, net<Transport>>;

/// The options; Python sets the attributes.
struct pull_settings {
  std::int64_t per_request_timeout_ms = 600'000;
  std::uint64_t chunk_bytes = default_chunk_bytes;
  std::uint64_t version = 0;
  std::uint64_t recipient = 0;
  std::uint32_t window = 0;
  std::uint32_t retries = 3;
  std::int64_t progress_interval_ms = 100;
  bool native = false;  ///< the image in one chunk, or an error
  bool unverified = false;  ///< also an image without a digest
  bool believe = false;  ///< over links where anybody can answer first, also without a version
  py::object progress = py::none();
  py::object abort = py::none();
  py::object cursor = py::none();  ///< a Cursor, if a pull goes on that another one began
  /// Asked by download_into when all has arrived, before the owner hears of it. False: it forgets this recipient.
  py::object agrees = py::none();

  void each_object(const auto& f) const noexcept { f(progress), f(abort), f(cursor), f(agrees); }
  void let_go_of_objects() { progress = abort = cursor = agrees = py::none(); }
};

inline py::tuple to_python(const progress_event& e) {
  const auto digits = to_digits(e.ref);
  return py::make_tuple(std::string(to_string(e.phase)), std::string(digits.data(), digits.size()), e.recipient.value,
                        e.bytes_done, e.bytes_total, e.tensors_done, e.tensors_total, e.sequence,
                        to_text(code_name(e.code)));
}
inline py::tuple to_python(const receipt& r) {
  return py::make_tuple(
      std::string(to_string(r.outcome)), r.bytes, r.chunks, r.damaged, r.version, r.fingerprint, r.digest, r.confirmed,
      to_text(r.unconfirmed_because == errc{} ? std::string_view() : code_name(r.unconfirmed_because)), r.believed);
}

/// The ID of a reference's digits, of which those of its version are settled by the caller.
inline ref_id id_or_raise(std::string_view digits) {
  const auto ref = parse_reference(digits);
  if (!ref || !ref->id)
    raise(errc::invalid_argument, digits,
          "this is no reference: 48 or 32 hexadecimal digits are wanted, as add_tensors returns them");
  return ref->id;
}

/// Adapts a consumer to an image that has to come in one chunk.
template <class Consumer>
class in_one_chunk : public Consumer {
 public:
  template <class... Arguments>
  explicit in_one_chunk(bool wanted, Arguments&&... arguments)
      : Consumer(std::forward<Arguments>(arguments)...), wanted_(wanted) {}

  /// What the owner has said of the image; empty before.
  const description& described() const noexcept { return described_; }
  /// The longest chunk of the link.
  void most_in_a_frame(std::uint64_t bytes) noexcept { most_ = bytes; }
  result<void> begin(const description& d) noexcept {
    described_ = d;
    if (wanted_ && d.image_bytes > most_) return failure(errc::does_not_fit, d.image_bytes);
    return Consumer::begin(d);
  }

 private:
  std::uint64_t most_ = max_payload_bytes;
  description described_{};
  bool wanted_;
};

/// What a caller has said that an image may come to.
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

struct not_described {
  constexpr const image_schema* operator()() const noexcept { return nullptr; }
};

/// One pull with the interpreter's lock released: `run(reference, options, chunks)` does it. `described()`: the schema
/// that has come with it. `part`: only the tensors of the destination are pulled. `cursor`: where it stands, in place
/// of that of the settings. Throws what a callback or Ctrl-C has thrown.
template <class Run, class Described = not_described>
result<receipt> try_pull(Run run, std::string_view ref, const pull_settings& s, interruption& stop, bool part = false,
                         Described described = {}, resume_cursor* cursor = nullptr) {
  const reference from{id_or_raise(ref), s.version, 0};
  auto tell = [&](progress_event e) {
    if (const image_schema* const schema = described()) count_done(e, *schema, e.bytes_done);
    const interpreter_lock lock;
    stop.guard([&] { s.progress(to_python(e)); });
  };
  pull_options options;
  options.per_request_timeout = std::chrono::milliseconds(s.per_request_timeout_ms);
  options.version = s.version;
  options.part = part;
  options.unverified = s.unverified;
  options.believe = s.believe;
  options.window = s.window;
  options.stop = interruption_token{&stop};
  options.retry.retries = s.retries;
  options.recipient = {s.recipient};
  if (!s.progress.is_none()) options.progress = tell;
  options.progress_interval = std::chrono::milliseconds(s.progress_interval_ms);
  options.cursor = cursor != nullptr || s.cursor.is_none() ? cursor : s.cursor.cast<resume_cursor*>();
  const auto done = [&] {
    const interpreter_unlock unlocked;
    return run(from, options, chunks{s.chunk_bytes});
  }();
  stop.rethrow();
  return done;
}
/// The same, and throws tensorpull.Error.
template <class Run, class Described = not_described>
receipt pull(Run run, std::string_view ref, const pull_settings& s, interruption& stop, bool part = false,
             Described described = {}) {
  const auto done = try_pull(std::move(run), ref, s, stop, part, std::move(described));
  if (!done) raise(done.error(), true);
  return *done;
}

}  // namespace tensorpull::python
