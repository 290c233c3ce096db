// A pull of one byte: the owner hears that all that it has published is here.
#pragma once

#include "pulling.hpp"
#include "slices.hpp"
#include "tensor_table.hpp"

#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/consumers/resume_cursor.hpp>

#include <array>

namespace tensorpull::python {

/// An image of which everything is here already. A pull that goes on at its end takes the last byte, which the owner
/// has to send before it counts a recipient, and compares the digest of all.
class held_image {
 public:
  static constexpr bool irrevocable = false;

  /// Borrows what the view points to, and the others.
  held_image(const source_view& image, const py::object& agrees, interruption& stop) noexcept
      : image_(image), agrees_(&agrees), stop_(&stop) {}

  std::uint64_t fingerprint() const noexcept { return image_.schema->fingerprint; }
  const image_schema* schema() const noexcept { return image_.schema; }
  source_view read_back() const noexcept { return image_; }
  result<void> begin(const description&) noexcept { return {}; }
  prepared prepare(std::uint64_t, std::uint64_t length, std::span<std::span<std::byte>> out) noexcept {
    return detail::prepare_in(scratch_, length, out);
  }
  /// Refuses all but the last byte: then it is another image, or this link begins every pull anew.
  result<void> commit(std::uint64_t offset, std::span<const std::byte>) noexcept {
    refused_ = refused_ || offset + 1 != image_.schema->image_bytes;
    return refused_ ? result<void>(failure(errc::unsupported_request)) : result<void>();
  }
  result<void> chunk(std::uint64_t, std::uint64_t) noexcept { return {}; }
  result<void> finish(const receipt&) noexcept { return ask(*agrees_, *stop_); }
  void abandon(const error&) noexcept {}
  /// Whether the owner is told to forget that it was asked.
  bool looked() const noexcept { return refused_; }

 private:
  source_view image_;
  const py::object* agrees_;
  interruption* stop_;
  std::array<std::byte, 1024> scratch_;
  bool refused_ = false;
};

/// Tells the owner that the tensors that are described are here, which are all that is published with this metadata
/// under the version of the settings. Returns the receipt; None: they are not that, or the link cannot do it, and the
/// owner has forgotten it.
inline py::object confirm(source& from, std::string_view ref, const py::sequence& described,
                          const std::vector<std::pair<std::string, std::string>>& metadata, const py::object& how) {
  const auto s = settings_of<pull_settings>(how);
  device_reader devices;
  const dynamic_image image = devices.image_of(tensor_table(described), metadata);
  interruption stop(s.abort);
  held_image to(image.source(), s.agrees, stop);
  facade::consumer_for as(to);
  resume_cursor end{id_or_raise(ref), to.fingerprint(), s.version, image.schema().image_bytes, s.version};
  const auto got = pull_with(
      ref, s, stop, {.cursor = &end}, [&, pulls = from.begin()](const reference& wanted, const pull_options& options) {
        return devices.copies()->within(stop, [&] { return pulls(wanted, as, options, s.chunk_bytes); });
      });
  if (!got && to.looked()) return py::none();
  if (!got) raise(got.error(), true);
  return to_python(*got, as);
}

}  // namespace tensorpull::python
