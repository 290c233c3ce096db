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
  std::uint32_t window = 4;
  std::uint32_t retries = 3;
  std::int64_t progress_interval_ms = 100;
  bool native = false;       ///< the image in one chunk, or an error
  bool unverified = false;   ///< also an image without a digest
  py::object progress = py::none();
  py::object abort = py::none();
  py::object cursor = py::none();  ///< a Cursor, if a pull goes on that another one began
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
      to_text(r.unconfirmed_because == errc{} ? std::string_view() : code_name(r.unconfirmed_because)));
}

inline ref_id id_or_raise(std::string_view digits) {
  const auto id = parse_ref_id(digits);
  if (!id || !*id) raise(errc::invalid_argument, digits);
  return *id;
}

/// Adapts a consumer to an image that has to come in one chunk.
template <class Consumer>
class in_one_chunk : public Consumer {
 public:
  template <class... Arguments>
  explicit in_one_chunk(bool wanted, Arguments&&... arguments)
      : Consumer(std::forward<Arguments>(arguments)...), wanted_(wanted) {}

  /// The longest chunk of the link.
  void most_in_a_frame(std::uint64_t bytes) noexcept { most_ = bytes; }
  result<void> begin(const description& d) noexcept {
    if (wanted_ && d.image_bytes > most_) return failure(errc::does_not_fit, d.image_bytes);
    return Consumer::begin(d);
  }

 private:
  std::uint64_t most_ = max_payload_bytes;
  bool wanted_;
};

struct not_described {
  constexpr const image_schema* operator()() const noexcept { return nullptr; }
};

/// One pull with the interpreter's lock released: `run(reference, options, chunks)` does it. `described()`: the schema
/// that has come with it. `cursor`: where it stands, in place of that of the settings. Throws what a callback or Ctrl-C
/// has thrown.
template <class Run, class Described = not_described>
result<receipt> try_pull(Run run, std::string_view ref, const pull_settings& s, interruption& stop,
                         std::span<const std::string_view> subset = {}, Described described = {},
                         resume_cursor* cursor = nullptr) {
  const reference from{id_or_raise(ref), s.version, 0};
  auto tell = [&](progress_event e) {
    if (const image_schema* const schema = described()) count_done(e, *schema, e.bytes_done);
    const interpreter_lock lock;
    stop.guard([&] { s.progress(to_python(e)); });
  };
  pull_options options;
  options.per_request_timeout = std::chrono::milliseconds(s.per_request_timeout_ms);
  options.version = s.version;
  options.tensors = subset;
  options.unverified = s.unverified;
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
receipt pull(Run run, std::string_view ref, const pull_settings& s, interruption& stop,
             std::span<const std::string_view> subset = {}, Described described = {}) {
  const auto done = try_pull(std::move(run), ref, s, stop, subset, std::move(described));
  if (!done) raise(done.error(), true);
  return *done;
}

}  // namespace tensorpull::python
