// Reads the header of a safetensors file as a stream. Decides what is accepted: what Python's safetensors 0.8 accepts and its
// specification allows.
#pragma once

#include <tensorpull/tensors/safetensors/detail/header_events.hpp>
#include <tensorpull/tensors/safetensors/detail/header_text.hpp>

#include <nlohmann/json.hpp>

namespace tensorpull {

/// Gives `sink` each tensor and each pair of metadata in the order of the text, and says where the data lies. `File` has size() and
/// read_at(offset, span) -> result<void>. `Sink` has tensor(const detail::described_tensor&) and metadata(key, value), both giving
/// result<void>; an error of either ends the reading. That names are unique and the data has no hole, the caller checks: it needs all of
/// them (safetensors_image does).
/// Memory: 5 KiB of stack, however the text is nested, and on the heap about four times its longest string. Never throws.
/// Errors, `at` the byte of the file that was reached and `name` the tensor, where it is about one: bad_file; duplicate_name
/// (`__metadata__`); unsupported_dtype; unsupported_layout (more than 65,535 dimensions); size_overflow; does_not_fit (more text than the
/// reference library reads); out_of_memory; those of read_at and of `sink`.
template <class File, class Sink>
[[nodiscard]] result<detail::header_bounds> read_safetensors_header(const File& file, Sink& sink) noexcept {
  const auto bounds = detail::read_header_bounds(file);
  if (!bounds) return bounds;
  detail::header_text<File> text(file, *bounds);
  // the JSON reader would skip a byte order mark and white space
  if (text.more() && text.current() != '{') return failure(errc::bad_file, 8);
  struct events : detail::header_events<Sink> {
    events(Sink& to, detail::header_text<File>& from) noexcept : detail::header_events<Sink>(to), from_(from) {}
    bool end_object() {
      const bool go_on = detail::header_events<Sink>::end_object();
      if (this->ended()) from_.stop();  // what follows is padding, which the JSON reader would collect
      return go_on;
    }
    detail::header_text<File>& from_;
  } reader(sink, text);
  bool accepted = false;
#if defined(__cpp_exceptions)
  try {
    accepted = nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  } catch (...) {
    return failure(errc::out_of_memory);
  }
#else
  accepted = nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
#endif
  const std::uint64_t reached = text.position();
  if (accepted && text.only_padding_left()) return bounds;
  if (!text.read()) return failure(text.read().error());
  return failure(accepted ? errc::bad_file : reader.reason().code, reached, accepted ? error_name() : reader.reason().name, reader.reason().system);
}

}  // namespace tensorpull
