// Directories as images: published, and received.
#include "facade/directories.hpp"
#include "facade/hub.hpp"
#include "file.hpp"
#include "parts.hpp"
#include "places.hpp"
#include "publications.hpp"

#include <tensorpull/satellites/directories/receive_directory.hpp>

#include <pybind11/stl.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensorpull::python {
namespace {

/// Raises an error that names the file, below the directory if it is not that itself.
[[noreturn]] void raise_about_directory(const error& e, const std::string& path, bool landed) {
  const std::string_view name = e.name.view(), last = std::string_view(path).substr(path.find_last_of('/') + 1);
  const bool itself = name.empty() || name == error_name(std::string_view(path)).view() ||
                      name == error_name(last).view();
  const bool of_file = e.code == errc::io || e.code == errc::disk_full || e.code == errc::invalid_argument ||
                       e.code == errc::duplicate_name;
  std::string_view text;
  if (e.code == errc::io)
    text = e.system == ELOOP ? "a symbolic link is in the way" : "the file cannot be read or written";
  if (e.code == errc::invalid_argument)
    text = itself ? "no file is chosen" : "the name could not be a file's everywhere";
  if (e.code == errc::duplicate_name) text = "two files have names that are one on some systems";
  if (e.code == errc::schema_mismatch && name == directory_key) text = "a model is published there, and no directory";
  const std::string which = itself ? path : path + "/" + std::string(name);
  raise(e, landed, text, of_file ? which : std::string_view());
}

class directory : public opened_image {
 public:
  directory(const std::string& path, const std::vector<std::string>& include, const std::vector<std::string>& exclude,
            bool follow_links)
      : image_(open(path, facade::chosen_files(include, exclude), follow_links)) {}

  source_view source() const noexcept override { return image_.source(); }
  std::string changed() const { return std::string(image_.changed()); }
  std::size_t files() const { return image_.files(); }

 private:
  static directory_image open(const std::string& path, const facade::chosen_files& chosen, bool follow_links) {
    auto made = without_lock(
        [&] { return directory_image::open(path, {.files = chosen.choice(), .follow_links = follow_links}); });
    if (!made) raise_about_directory(made.error(), path, false);
    return std::move(*made);
  }

  directory_image image_;
};

/// Returns the receipt, and how many files and bytes the directory has, and how many of these were there.
py::tuple download_directory(source& from, std::string_view ref, const std::string& path, const std::string& base,
                             const std::vector<std::string>& include, const std::vector<std::string>& exclude,
                             bool resume, bool overwrite, std::uint64_t max_bytes, const py::object& how) {
  const auto s = settings_of<pull_settings>(how);
  interruption stop(s.abort);
  const facade::chosen_files chosen(include, exclude);
  const auto pulls = from.begin();
  std::uint64_t came = 0;
  const auto landed = [&](const landed_range& r) { came += r.bytes; };
  const directory_options options{.files = chosen.choice(),
                                  .base = base,
                                  .overwrite = overwrite,
                                  .anew = !resume,
                                  .max_bytes = max_bytes,
                                  .landed = landed};
  const auto done = pull_with(ref, s, stop, {}, [&](const reference& wanted, const pull_options& given) {
    const auto pull = [&](auto& to, const reference& of, const pull_options& with, directory_phase phase) {
      facade::consumer_for as(to);
      return pulls(of, as, with, phase == directory_phase::look ? 64 * 1024 : s.chunk_bytes);
    };
    return receive_directory(pull, wanted, path, options, given);
  });
  if (!done) raise_about_directory(done.error(), path, true);
  receipt last = done->last;
  last.bytes = came;
  return py::make_tuple(to_python(last), done->files, done->bytes, done->kept);
}

/// Makes a directory of a hub's model. Returns its commit, how many files and bytes it has, how many of these have
/// come, and how many were there.
py::tuple download_model(const std::string& address, const tls_settings& tls, const std::string& bearer,
                         const std::string& path, const std::string& base, const std::vector<std::string>& include,
                         const std::vector<std::string>& exclude, bool resume, bool overwrite, std::uint64_t max_bytes,
                         const py::object& how) {
  const auto s = settings_of<pull_settings>(how);
  if (!facade::features.bring_model)
    raise(errc::unsupported_request, address,
          "this build of tensorpull has no hubs: it was built without what hf:// needs");
  const auto model = facade::hub_model::read(address);
  if (!model || !model->file.empty())
    raise(errc::bad_address, address, "this is no model of a hub: hf://ORG/MODEL is wanted, perhaps with @REVISION");
  facade::place at = place_or_url(facade::hub_endpoint(), tls);
  if (!at.is.web) raise(errc::bad_address, "HF_ENDPOINT", "HF_ENDPOINT is no URL of a hub");
  at.http.bearer = bearer.empty() ? facade::hub_token() : bearer;
  interruption stop(s.abort);
  progress_event now;
  std::chrono::steady_clock::time_point told{};
  std::uint64_t came = 0;
  const auto tell = [&](progress_phase phase) {
    if (s.tell.is_none()) return;
    now.phase = phase, ++now.sequence;
    const interpreter_lock lock;
    stop.guard([&] { s.tell(to_python(now)); });
  };
  const auto landed = [&](std::uint64_t before, std::uint64_t bytes, std::uint64_t total) {
    const bool first = came == 0;
    came += bytes, now.bytes_done = std::max(now.bytes_done, before + bytes), now.bytes_total = total;
    const auto time = std::chrono::steady_clock::now();
    if (!first && time - told < s.progress_interval) return;
    told = time;
    tell(first ? progress_phase::started : progress_phase::active);
  };
  const auto done = stop.run([&] {
    auto brought = facade::features.bring_model(
        *model, {std::move(at), s.per_request_timeout, interruption_token{&stop}, s.retry},
        {path, base, include, exclude, overwrite, !resume, max_bytes, landed});
    if (!brought) now.code = brought.error().code;
    else now.bytes_done = now.bytes_total = brought->bytes;
    if (brought) tell(progress_phase::completed);
    else tell(now.code == errc::cancelled ? progress_phase::aborted : progress_phase::failed);
    return brought;
  });
  if (!done) raise_about_directory(done.error(), path, true);
  return py::make_tuple(done->commit, done->files, done->bytes, came, done->kept);
}

}  // namespace

void bind_directories(py::module_& m) {
  py::class_<directory, opened_image>(m, "Directory")
      .def(py::init<const std::string&, const std::vector<std::string>&, const std::vector<std::string>&, bool>())
      .def_property_readonly("changed", &directory::changed)
      .def_property_readonly("files", &directory::files);
  m.def("download_directory", &download_directory);
  m.def("download_model", &download_model);
  m.attr("has_hubs") = bool(facade::features.bring_model);
}

}  // namespace tensorpull::python
