// A file of tensors becomes its next version by a difference, or by the tensors that have changed: the old file is
// read, and the new one is written beside it.
#include "difference.hpp"

#include <tensorpull/consumers/any_schema/published_schema.hpp>
#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>
#include <tensorpull/satellites/differences/applied_difference.hpp>
#include <tensorpull/satellites/differences/changed_tensors.hpp>
#include <tensorpull/satellites/differences/deflate/deflate.hpp>
#include <tensorpull/satellites/differences/difference.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

namespace tools {
namespace {

/// What a pull of a difference goes into.
using applied_to_file = tp::applied_difference<tp::deflate_coder>;

/// What a pull of a difference goes into: its own part, so that another process goes on with it.
class arriving_difference : public tp::safetensors_file {
 public:
  explicit arriving_difference(tp::safetensors_file file) noexcept : safetensors_file(std::move(file)) {}

  tp::result<void> begin(const tp::description& d) noexcept {
    described_ = d;
    return safetensors_file::begin(d);
  }
  /// All of it is in the part, and gets no other name.
  tp::result<void> finish(const tp::receipt&) noexcept { return safetensors_file::chunk(0, described_.image_bytes); }

  tp::result<void> apply(applied_to_file& to, const tp::stop_token& stop) noexcept {
    if (const auto ok = to.begin(described_); !ok) return ok;
    const std::uint64_t end = described_.image_bytes;
    for (std::uint64_t at = 0; at < end;) {
      if (stop.stop_requested()) return tp::failure(tp::errc::cancelled);
      std::array<std::span<std::byte>, 1> room;
      if (to.prepare(at, end - at, room).pieces == 0) return tp::failure(tp::errc::io);
      const auto piece = room[0].first(static_cast<std::size_t>(std::min<std::uint64_t>(room[0].size(), end - at)));
      if (const auto ok = tp::detail::read_range(read_back(), at, piece); !ok) return ok;
      if (const auto ok = to.commit(at, piece); !ok) return ok;
      at += piece.size();
    }
    if (const auto ok = to.chunk(0, end); !ok) return ok;
    return to.finish({});
  }

 private:
  tp::description described_{};
};
static_assert(tp::consumer<arriving_difference>);

/// What a pull of tensors that have changed goes into. The owner is told to forget that it was asked: the pull of the
/// whole, which finds that all is there, is counted.
class changed_to_file : public tp::land {
 public:
  explicit changed_to_file(const tp::destination_view& to) noexcept : land(to) {}

  /// Whether all of them are there. The pull has ended as `cancelled` then.
  bool complete() const noexcept { return complete_; }

  tp::result<void> finish(const tp::receipt& r) noexcept {
    if (const auto ok = land::finish(r); !ok) return ok;
    complete_ = true;
    return tp::failure(tp::errc::cancelled);
  }
  static constexpr bool looked() noexcept { return true; }

 private:
  bool complete_ = false;
};
static_assert(tp::consumer<changed_to_file>);

/// The next version of `base`, written into a file that is to be: the header as it was published, and tensors that are
/// read from the one and written to the other. Borrows all three. Memory: what applied_difference takes, and 64 KiB.
class file_difference {
 public:
  /// Writes the header. schema_mismatch: `seen` has other tensors than `base`. Errors: those of the file.
  static tp::result<std::unique_ptr<file_difference>> begin(const tensor_file& base, const tp::published_schema& seen,
                                                            tp::safetensors_file& file) {
    std::unique_ptr<file_difference> made(new file_difference(base, seen, file));
    const tp::image_schema& schema = seen.schema_of_image();
    if (schema.fingerprint != base.schema().fingerprint) return tp::failure(tp::errc::schema_mismatch);
    std::vector<tp::mutable_tensor_view> views;
    for (std::size_t i = 0; i < schema.tensor_count; ++i) {
      const tp::tensor_entry& t = schema.tensors[i];
      views.push_back({t.name, t.type, t.extents(), reinterpret_cast<std::byte*>(i), {}, true});
    }
    made->writer_.context = made.get();
    made->writer_.write = &file_difference::write;
    made->writer_.staging = made->staging_;
    made->reader_ = {&file_difference::read, made.get()};
    made->writer_.reader = &made->reader_;
    auto image = tp::dynamic_image::make(std::span<const tp::mutable_tensor_view>(views), schema.pairs(),
                                         made->writer_);
    if (!image) return tp::failure(image.error());
    made->image_.emplace(std::move(*image));
    const tp::image_schema& ours = made->image_->schema();
    const tp::description& d = seen.described();
    if (ours.header_bytes != d.data_start || ours.image_bytes != d.image_bytes)
      return tp::failure(tp::errc::schema_mismatch);  // an owner whose headers are written in another way
    auto applied = applied_to_file::make(made->image_->destination(), made->coder_);
    if (!applied) return tp::failure(applied.error());
    made->applied_.emplace(std::move(*applied));
    if (const auto ok = file.begin(d); !ok) return tp::failure(ok.error());
    for (std::uint64_t at = 0; at < d.data_start;) {
      const std::size_t n = tp::write_header(ours, at, made->staging_);
      if (const auto ok = made->put(at, std::span(made->staging_).first(n)); !ok) return tp::failure(ok.error());
      at += n;
    }
    return made;
  }

  /// What the difference is pulled into.
  applied_to_file& target() { return *applied_; }
  /// What is written, and read from the base.
  tp::destination_view model() { return image_->destination(); }
  /// Copies the tensors that have not changed.
  tp::result<void> copy_others(const tp::changed_tensors& changed) {
    const tp::image_schema &all = image_->schema(), &some = *changed.destination().schema;
    const tp::source_view from = base_.source;
    std::vector<std::byte> piece(64 * 1024);
    for (std::size_t i = 0, k = 0; i < all.tensor_count; ++i) {
      const tp::tensor_entry& t = all.tensors[i];
      if (k < some.tensor_count && some.tensors[k].name == t.name) {  // both in the order of the image
        ++k;
        continue;
      }
      for (std::uint64_t at = t.begin, n = 0; at < t.end; at += n) {
        n = std::min<std::uint64_t>(piece.size(), t.end - at);
        const std::span these = std::span(piece).first(static_cast<std::size_t>(n));
        if (const auto ok = tp::detail::read_range(from, from.schema->header_bytes + at, these); !ok) return ok;
        if (const auto ok = put(all.header_bytes + at, these); !ok) return ok;
      }
    }
    return {};
  }
  /// All of the file is on the disk.
  tp::result<void> end() { return file_.safetensors_file::chunk(0, seen_.described().image_bytes); }

 private:
  file_difference(const tensor_file& base, const tp::published_schema& seen, tp::safetensors_file& file)
      : base_(base), seen_(seen), file_(file) {}

  tp::result<void> put(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    while (!bytes.empty()) {
      std::array<std::span<std::byte>, 1> room;
      if (file_.safetensors_file::prepare(offset, bytes.size(), room).pieces == 0) return tp::failure(tp::errc::io);
      const std::size_t n = std::min(room[0].size(), bytes.size());
      std::copy_n(bytes.begin(), n, room[0].begin());
      if (const auto ok = file_.safetensors_file::commit(offset, room[0].first(n)); !ok) return ok;
      offset += n;
      bytes = bytes.subspan(n);
    }
    return {};
  }
  static tp::result<void> write(void* self, std::uintptr_t tensor, std::uint64_t offset,
                                std::span<const std::byte> bytes) noexcept {
    auto& to = *static_cast<file_difference*>(self);
    const tp::image_schema& schema = to.seen_.schema_of_image();
    return to.put(to.seen_.described().data_start + schema.tensors[tensor].begin + offset, bytes);
  }
  /// Of the old file, whose tensors lie in the same order: a block is read before it is written, and never again.
  static tp::result<void> read(const void* self, std::uintptr_t tensor, std::uint64_t offset,
                               std::span<std::byte> out) noexcept {
    const auto& from = *static_cast<const file_difference*>(self);
    const tp::source_view base = from.base_.source;
    return tp::detail::read_range(base, base.schema->header_bytes + base.schema->tensors[tensor].begin + offset, out);
  }

  const tensor_file& base_;
  const tp::published_schema& seen_;
  tp::safetensors_file& file_;
  tp::deflate_coder coder_;
  std::array<std::byte, 64 * 1024> staging_;
  tp::destination_writer writer_{};
  tp::source_reader reader_{};
  std::optional<tp::dynamic_image> image_;
  std::optional<applied_to_file> applied_;
};

}  // namespace

tp::result<coded_difference> code_difference(const tp::source_view& old, const tp::source_view& now,
                                             const tp::reference& whole, const tp::stop_token& stop) {
  const auto from = tp::image_version<tp::xxhash_digest>(old, stop);
  if (!from) return tp::failure(from.error());
  tp::deflate_coder coder;
  auto made = tp::model_difference::make(old, now, coder, now.schema->image_bytes / 10 * 9, stop);
  if (!made) return tp::failure(made.error());
  const auto kept = std::make_shared<const tp::model_difference>(std::move(*made));
  return coded_difference{kept->image(), kept->bytes().size(), tp::difference_id(whole, *from), kept};
}

brought bring_difference(const wanted_difference& wanted, const tensor_file& base, tp::safetensors_file& file,
                         tp::resume_cursor& where) {
  const auto& [link, ref, given, chunk, most_bytes, path, anew] = wanted;
  tp::pull_options options = given;
  const tp::stop_token stop = options.stop;
  const auto from = tp::image_version<tp::xxhash_digest>(base.source, stop);
  if (!from) return {};
  options.believe = true;  // what comes of it is compared with the version
  options.window = 1;
  options.unverified = true;
  tp::published_schema seen({});
  (void)pull_call{.link = link, .ref = ref, .options = options, .chunk = 64 * 1024, .first_alone = true}.into(seen);
  const tp::description& d = seen.described();
  if (!seen.complete() || d.version == 0 || d.image_bytes > most_bytes) return {};
  options.window = 0;
  options.unverified = false;
  const tp::reference whole{ref.id, d.version, 0}, beside{tp::difference_id(whole, *from), 0, 0};
  const auto go_on_from_its_end = [&, id = ref.id](file_difference& made) {
    if (made.end()) where = {id, d.fingerprint, d.version, d.image_bytes, d.version};
  };
  brought done;
  std::unique_ptr<file_difference> made;
  tp::resume_cursor cursor;
  if (auto part = tp::safetensors_file::create(path, {.max_bytes = most_bytes, .resume = &cursor})) {
    arriving_difference coded(std::move(*part));
    if (anew || cursor.ref != beside.id) cursor = {};
    const std::uint64_t were_there = cursor.offset;
    options.cursor = &cursor;
    const auto came = pull_call{.link = link, .ref = beside, .options = options, .chunk = chunk, .first_alone = true}
                          .into(coded);
    options.cursor = nullptr;
    const std::uint64_t reached = came ? came->bytes : came.error().at;
    done.bytes = reached - std::min(reached, were_there);
    if (came) {
      auto begun = file_difference::begin(base, seen, file);
      if (!begun) return done;
      made = std::move(*begun);
      if (coded.apply(made->target(), stop)) go_on_from_its_end(*made);
    }
    if (!came && tp::is_passing(came.error().code) && link.also_text.empty()) done.lost = came.error();
    if ((stop.stop_requested() || done.lost) && !where) {
      done.kept = cursor.offset;
      return done;
    }
    cursor = {};  // the part is removed
    if (where) return done;
  }
  if (stop.stop_requested()) return done;
  if (!made) {
    auto begun = file_difference::begin(base, seen, file);
    if (!begun) return done;
    made = std::move(*begun);
  }
  const auto changed = tp::changed_tensors::find<tp::xxhash_digest>(made->model(), seen.schema_of_image(), stop);
  if (!changed || changed->are_all()) return done;
  changed_to_file to(changed->destination());
  options.part = true;
  options.version = d.version;
  const auto how = pull_call{.link = link, .ref = whole, .options = options, .chunk = chunk, .first_alone = true}.into(
      to);
  if (to.complete() && made->copy_others(*changed)) go_on_from_its_end(*made);
  done.bytes += how ? how->bytes : how.error().at;
  return done;
}

}  // namespace tools
