// A pull into a file, which goes on where an earlier one stopped, also one that was killed.
#pragma once

#include "pulling.hpp"

#include <tensorpull/consumers/any_schema/finished_file.hpp>
#include <tensorpull/consumers/any_schema/safetensors_file.hpp>

#include <sys/stat.h>

#include <string>
#include <utility>

namespace tensorpull::python {

/// Raises an error of a pull into a file: one of the file itself has its whole path.
[[noreturn]] inline void raise_about_file(const error& e, std::string_view path, bool landed = false) {
  const bool of_file = e.code == errc::io || e.code == errc::disk_full || e.code == errc::bad_file;
  raise(e, landed, e.code == errc::io ? "the file cannot be read or written" : "", of_file ? path : "");
}

/// The receipt of a file that is there under its final name, if it is what is published; otherwise None. Throws
/// tensorpull.Error if that cannot be said.
inline py::object already_there(source& from, std::string_view ref, const std::string& path, pull_settings s,
                                interruption& stop) {
  struct stat about{};
  if (::lstat(path.c_str(), &about) != 0 || !S_ISREG(about.st_mode) || about.st_size == 0) return py::none();
  auto opened = positioned_file::open(path);
  if (!opened) return py::none();  // whether it may be replaced is said when the new one is made
  const ref_id id = id_or_raise(ref);
  finished_file file(std::move(*opened));
  auto where = stop.run([&] { return finished_file::look(file, id, interruption_token{&stop}); });
  if (!where) raise_about_file(where.error(), path);
  if (s.version != 0 && where->version != s.version) return py::none();
  s.native = false;
  facade::consumer_for as(file);
  const auto how = try_pull(from, as, ref, s, stop, {.cursor = &*where});
  if (how) return to_python(*how, as);
  if (how.error().code == errc::stale_version) return py::none();
  raise_about_file(how.error(), path, true);
}

/// `path`: as the file system has it. `resume`: goes on with what lies in .NAME.part, and keeps it there. Returns the
/// receipt.
inline py::object download_file(source& from, std::string_view ref, const std::string& path, bool resume,
                                bool overwrite, std::uint64_t max_bytes, const py::object& how) {
  const auto s = settings_of<pull_settings>(how);
  const ref_id id = id_or_raise(ref);
  interruption stop(s.abort);
  if (resume && !from.is_web())  // most web servers do not say by which digest they know a file
    if (const py::object there = already_there(from, ref, path, s, stop); !there.is_none()) return there;
  resume_cursor where;
  for (bool anew = false;;) {
    auto made = safetensors_file::create(
        path, {.overwrite = overwrite, .max_bytes = max_bytes, .resume = resume ? &where : nullptr});
    if (!made) raise_about_file(made.error(), path);
    safetensors_file file = std::move(*made);
    if (!file.exclusive() && !anew)
      py::module_::import("tensorpull._log")
          .attr("logger")
          .attr("warning")("%s: there are no locks on files here: one process at a time may have its part",
                           to_text(path));
    facade::consumer_for as(file);
    if (anew || (s.version != 0 && where.version != s.version)) where = {};
    if (from.is_web() && where.ref != id) where = {};  // another URL may name another file
    // an owner that was started again may have another reference, but the version must be the same
    where.ref = where ? id : ref_id{};
    const resume_cursor found = where;
    const auto got = try_pull(from, as, ref, s, stop, {.cursor = resume ? &where : nullptr});
    if (got) return to_python(*got, as);
    const bool other = got.error().code == errc::stale_version && found;
    if (other && !anew && s.version == 0) {
      // whatever is there now is wanted, and what was begun is of another version
      anew = true;
      continue;
    }
    if (other) where = found;  // what was begun is kept
    const bool of_the_page = from.is_web() && got.error() == errc::bad_file;
    if (got.error() == errc::too_large || of_the_page) {
      const std::string text = above(as.described(), {max_bytes});
      raise(got.error(), true, text, text.empty() ? std::string_view() : path);
    }
    raise_about_file(got.error(), path, true);
  }
}

}  // namespace tensorpull::python
