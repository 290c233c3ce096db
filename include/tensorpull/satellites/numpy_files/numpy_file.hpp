// The arrays of an npy or npz file as tensors, without Python. Headers are read at once, and bytes as they are sent.
#pragma once

#include <tensorpull/core/limits.hpp>
#include <tensorpull/image/dynamic.hpp>
#include <tensorpull/satellites/numpy_files/detail/inflate.hpp>
#include <tensorpull/satellites/numpy_files/detail/npy_header.hpp>
#include <tensorpull/satellites/numpy_files/detail/npy_reader.hpp>
#include <tensorpull/satellites/numpy_files/detail/npy_tile.hpp>
#include <tensorpull/satellites/numpy_files/detail/zip_directory.hpp>
#include <tensorpull/system/files.hpp>

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensorpull {

/// How a numpy_file is opened.
struct numpy_file_options {
  /// The name of an npy file's tensor; empty: the file's name without ".npy". Arrays of an npz file have names of their
  /// own.
  std::string_view name = {};
  /// Compare an npz file's arrays with its checksums when it is opened, which reads the whole file once. NumPy does so
  /// when it reads them.
  bool check_crc32 = true;
  /// An archive with more members is refused: too_many_tensors.
  std::size_t most_arrays = default_limits::tensors;
};

namespace detail {

/// A file, followed by its unpacked members as if they were part of it.
class unpacked_file {
 public:
  explicit unpacked_file(positioned_file file) noexcept : file_(std::move(file)), size_(file_.size()) {}

  const positioned_file& file() const noexcept { return file_; }
  /// Adds bytes, and gives their offset. Throws std::bad_alloc.
  std::uint64_t add(std::vector<std::byte> bytes) {
    const std::uint64_t at = size_;
    size_ += bytes.size();
    unpacked_.push_back({at, std::move(bytes)});
    return at;
  }
  std::uint64_t size() const noexcept { return size_; }
  /// A range within the file, or within one addition. Errors: those of positioned_file.
  result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const noexcept {
    if (unpacked_.empty() || offset < unpacked_.front().at) return file_.read_at(offset, out);
    const auto behind = std::partition_point(unpacked_.begin(), unpacked_.end(),
                                             [&](const part& p) { return p.at <= offset; });
    const part& from = *(behind - 1);
    if (!range_within(offset - from.at, out.size(), from.bytes.size())) return failure(errc::bad_file, offset);
    std::copy_n(from.bytes.begin() + static_cast<std::ptrdiff_t>(offset - from.at), out.size(), out.begin());
    return {};
  }

 private:
  struct part {
    std::uint64_t at;
    std::vector<std::byte> bytes;
  };
  positioned_file file_;
  std::uint64_t size_;
  std::vector<part> unpacked_;
};

}  // namespace detail

/// An open file whose arrays are the tensors of an image. Holds a descriptor and a table: at most 128 bytes an array
/// (of up to four dimensions in C order) and its name, and at most 4 MiB more if arrays are in Fortran order. Members
/// of numpy.savez_compressed are unpacked into memory when it is opened. The file must not change while it is
/// published. If it becomes shorter, reads fail (io); if its bytes change, recipients that verify the image get another
/// digest.
class numpy_file {
 public:
  /// The first bytes decide whether it is a zip archive or an npy file. Accepts everything that NumPy writes and that
  /// has a dtype here, and nothing that NumPy refuses. Errors here that NumPy does not report: two arrays of one name
  /// (duplicate_name), a member called `.npy` that is not an npy file, a wrong checksum (bad_file). Errors, with the
  /// array's or the file's name: bad_file; unsupported_dtype; unsupported_layout (encrypted, or packed otherwise than
  /// NumPy does); those of positioned_file and of dynamic_image::make.
  [[nodiscard]] static result<numpy_file> open(std::string_view path, const numpy_file_options& options = {}) noexcept {
    auto file = positioned_file::open(path);
    if (!file) return failure(file.error());
    try {
      auto made = std::make_unique<state>(std::move(*file));
      if (const auto done = made->load(path, options); !done) {
        error why = done.error();
        if (why.name.empty()) why.name = made->file.file().name();
        return failure(why);
      }
      return numpy_file(std::move(made));
    } catch (const std::bad_alloc&) {
      return failure(errc::out_of_memory);
    }
  }

  /// The arrays as tensors. Valid while the file lives, also after a move.
  const dynamic_image& image() const noexcept { return *state_->image; }

 private:
  struct state {
    explicit state(positioned_file f) : file(std::move(f)) {}

    result<void> load(std::string_view path, const numpy_file_options& options) {
      std::array<std::byte, 4> start{};
      const std::span first(start.data(), detail::smaller(file.size(), start.size()));
      if (const auto done = file.read_at(0, first); !done) return done;
      const std::string_view mark(reinterpret_cast<const char*>(start.data()), first.size());
      const auto done = mark == "PK\3\4" || mark == "PK\5\6" ? load_archive(options) : load_one(path, options);
      if (!done) return done;
      auto made = dynamic_image::make(views, {}, {&read, this});
      if (!made) return failure(made.error());
      image.emplace(std::move(*made));
      views = {};
      names = {};
      shapes = {};
      return {};
    }

    result<void> load_one(std::string_view path, const numpy_file_options& options) {
      std::string_view name = options.name;
      if (name.empty()) name = without_suffix(path.substr(path.find_last_of('/') + 1));
      return add(name, 0, file.size());
    }

    result<void> load_archive(const numpy_file_options& options) {
      auto members = detail::zip_directory(file.file()).read(options.most_arrays);
      if (!members) return failure(members.error());
      for (detail::zip_member& member : *members) {
        if (member.deflated) {
          detail::inflater packed(file.file(), member.offset, member.offset + member.packed);
          auto bytes = packed.unpack(member.size);
          if (!bytes)
            return failure(bytes.error().code, member.offset, without_suffix(member.name), bytes.error().system);
          member.offset = file.add(std::move(*bytes));
        }
        std::array<std::byte, detail::npy_magic.size()> start{};
        const std::span first(start.data(), detail::smaller(member.size, start.size()));
        if (const auto done = file.read_at(member.offset, first); !done) return done;
        const std::string_view name = without_suffix(member.name);
        const bool is_array = std::string_view(reinterpret_cast<const char*>(start.data()), first.size()) ==
                              detail::npy_magic;
        if (!is_array && name.size() != member.name.size()) return failure(errc::bad_file, member.offset, name);
        if (options.check_crc32)
          if (const auto done = check_crc32(member); !done) return done;
        if (!is_array) continue;
        if (const auto done = add(name, member.offset, member.size); !done) return done;
      }
      return {};
    }

    result<void> add(std::string_view name, std::uint64_t offset, std::uint64_t size) {
      if (size < npy_header_least_bytes) return failure(errc::bad_file, offset + size, name);
      std::vector<std::byte> start(npy_header_least_bytes);
      if (const auto done = file.read_at(offset, start); !done) return done;
      start.resize(static_cast<std::size_t>(
          std::min<std::uint64_t>(size, npy_header_bytes(std::span(start).first<npy_header_least_bytes>()))));
      if (const auto done = file.read_at(offset, start); !done) return done;
      const auto header = parse_npy_header(start, size);
      if (!header) return failure(header.error().code, offset + header.error().at, name);

      detail::npy_place place;
      place.offset = offset + header->data_offset;
      place.element_bytes = static_cast<std::uint8_t>(bits(header->format.type) / 8);
      place.swap_bytes = header->format.swap_bytes;
      if constexpr (!little_endian_machine)
        place.swap_bytes = static_cast<std::uint8_t>(place.swap_bytes != 0 ? 0 : number_bytes(header->format.type));
      const bool columns = header->fortran_order && header->rank > 1 && header->data_bytes != 0;
      auto& shape = (columns ? column_shapes : shapes).emplace_back(header->extents().begin(), header->extents().end());
      if (columns) {
        place.rank = header->rank;
        place.shape = shape.data();
      }
      names.emplace_back(name);
      // in a deque elements stay where they are, so their addresses are the tokens
      const auto* const token = reinterpret_cast<const std::byte*>(&places.emplace_back(place));
      if (columns) tile.make_room(place);
      views.push_back({names.back(), header->format.type, shape, token, {}, 0, true});
      return {};
    }

    result<void> check_crc32(const detail::zip_member& member) {
      std::vector<std::byte> room(static_cast<std::size_t>(std::min<std::uint64_t>(member.size, 1_MiB)));
      uLong crc = 0;
      for (std::uint64_t at = 0; at < member.size;) {
        const std::span part(room.data(), detail::smaller(member.size - at, room.size()));
        if (const auto done = file.read_at(member.offset + at, part); !done) return done;
        crc = ::crc32(crc, reinterpret_cast<const Bytef*>(part.data()), static_cast<uInt>(part.size()));
        at += part.size();
      }
      return crc == member.crc32 ? result<void>{} : failure(errc::bad_file, member.offset, without_suffix(member.name));
    }

    static std::string_view without_suffix(std::string_view name) noexcept {
      return name.ends_with(".npy") ? name.substr(0, name.size() - 4) : name;
    }

    static result<void> read(const void* context, std::uintptr_t token, std::uint64_t offset,
                             std::span<std::byte> out) noexcept {
      const auto& place = *reinterpret_cast<const detail::npy_place*>(token);
      const auto& self = *static_cast<const state*>(context);
      if (place.rank != 0) return self.tile.read(self.file, place, offset, out);
      return detail::npy_reader(self.file, place).read(offset, out);
    }

    detail::unpacked_file file;
    std::deque<detail::npy_place> places;
    std::deque<std::vector<std::uint64_t>> column_shapes;
    mutable detail::npy_tile tile;
    // until there is an image, which copies them
    std::deque<std::string> names;
    std::deque<std::vector<std::uint64_t>> shapes;
    std::vector<tensor_view> views;
    std::optional<dynamic_image> image;
  };

  explicit numpy_file(std::unique_ptr<state> made) noexcept : state_(std::move(made)) {}

  std::unique_ptr<state> state_;
};

/// The tensor policy for npy and npz files. They can only be published: a file that was opened for reading cannot be
/// landed in.
struct numpy_files {
  using is_tensor_policy = void;
  using model_type = numpy_file;
  static constexpr bool is_static = false;

  /// The schema of the file's arrays.
  static const image_schema& schema(const model_type& model) noexcept { return model.image().schema(); }
  static source_view source(const model_type& model) noexcept { return model.image().source(); }
  /// Always false.
  static constexpr bool writable(const model_type&) noexcept { return false; }
};

}  // namespace tensorpull
