#include "directory.hpp"

#include <tensorpull/satellites/directories/receive_directory.hpp>

#include <memory>
#include <utility>

namespace tools {
namespace {

/// Patterns as the library takes them.
struct chosen_files {
  std::vector<std::string_view> include, exclude;

  explicit chosen_files(const path_patterns& of)
      : include(of.include.begin(), of.include.end()), exclude(of.exclude.begin(), of.exclude.end()) {}
  tp::file_choice choice() const { return {include, exclude}; }
};

}  // namespace

tp::result<tensor_file> open_directory(const std::string& path, const path_patterns& files, bool follow_links) {
  const chosen_files chosen(files);
  auto opened = tp::directory_image::open(path, {.files = chosen.choice(), .follow_links = follow_links});
  if (!opened) return tp::failure(opened.error());
  const auto image = std::make_shared<const tp::directory_image>(std::move(*opened));
  tensor_file made{.format = "directory", .file_bytes = image->schema().data_bytes(), .source = image->source()};
  made.changed = [image] { return std::string(image->changed()); };
  made.keep = image;
  return made;
}

tp::result<brought_directory> bring_directory(const wanted_directory& w) {
  const chosen_files chosen(w.files);
  const auto pull = [&](auto& to, const tp::reference& ref, const tp::pull_options& how, tp::directory_phase phase) {
    const bool look = phase == tp::directory_phase::look;
    return pull_call{.link = w.link,
                     .ref = ref,
                     .options = how,
                     .chunk = look ? 64 * 1024 : w.chunk,
                     .wrong = look ? nullptr : w.wrong,
                     .first_alone = phase != tp::directory_phase::whole}
        .into(to);
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
