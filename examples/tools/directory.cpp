#include "directory.hpp"

#include "facade/directories.hpp"

#include <tensorpull/satellites/directories/receive_directory.hpp>

#include <memory>
#include <utility>

namespace tools {

tp::result<tensor_file> open_directory(const std::string& path, const path_patterns& files, bool follow_links) {
  const tp::facade::chosen_files chosen(files.include, files.exclude);
  auto opened = tp::directory_image::open(path, {.files = chosen.choice(), .follow_links = follow_links});
  if (!opened) return tp::failure(opened.error());
  const auto image = std::make_shared<const tp::directory_image>(std::move(*opened));
  tensor_file made{.format = "directory", .file_bytes = image->schema().data_bytes(), .source = image->source()};
  made.changed = [image] { return std::string(image->changed()); };
  made.keep = image;
  return made;
}

tp::result<brought_directory> bring_directory(const wanted_directory& w) {
  const tp::facade::chosen_files chosen(w.files.include, w.files.exclude);
  const auto pull = [&](auto& to, const tp::reference& ref, const tp::pull_options& how, tp::directory_phase phase) {
    const bool look = phase == tp::directory_phase::look;
    const auto from = [&](const link_choice& link, const tp::pull_options& options) {
      return pull_call{.link = link,
                       .ref = ref,
                       .options = options,
                       .chunk = look ? 64 * 1024 : w.chunk,
                       .first_alone = phase != tp::directory_phase::whole}
          .into(to);
    };
    if (phase == tp::directory_phase::whole || w.link.also.empty()) return from(w.link, how);
    // one sender after the other: the first that is there is enough
    for (std::size_t i = 0;; ++i) {
      link_choice one = w.link;
      if (i > 0) one.at = w.link.also[i - 1];
      tp::pull_options options = how;
      const bool last = i == w.link.also.size();
      if (!last) options.retry.retries = 1;
      const auto done = from(one, options);
      if (done || last || !tp::is_passing(done.error().code) || how.stop.stop_requested()) return done;
    }
  };
  const auto landed = [&](const tp::landed_range& r) { w.landed(r.offset, r.bytes, r.total); };
  const auto done = tp::receive_directory(pull, w.ref, w.path,
                                          {.files = chosen.choice(),
                                           .base = w.base,
                                           .overwrite = w.overwrite,
                                           .anew = w.anew,
                                           .max_bytes = w.most_bytes,
                                           .landed = landed},
                                          w.options);
  if (!done) return tp::failure(done.error());
  return brought_directory{done->last, done->files, done->bytes, done->kept};
}

}  // namespace tools
