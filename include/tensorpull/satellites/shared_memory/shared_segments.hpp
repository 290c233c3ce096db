// The recipient's side of an image in shared memory: the checked descriptors of the other side, and the image behind
// them.
#pragma once

#include <tensorpull/satellites/shared_memory/sealed_memory.hpp>
#include <tensorpull/satellites/shared_memory/segment_index.hpp>
#include <tensorpull/satellites/shared_memory/shared_stream.hpp>

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tensorpull {

/// An image in an owner's shared memory. It stays readable when the owner is gone.
class shared_segments {
 public:
  /// No image.
  shared_segments() noexcept = default;

  /// Checks descriptors that arrived. `version`, `image_bytes`: of the owner's description. `most_extents`: the most
  /// that are accepted. Errors: memory_not_shared: no descriptors; memory_not_sealed; bad_shared_memory; does_not_fit;
  /// out_of_memory.
  static result<shared_segments> open(passed_descriptors&& of, std::uint64_t version, std::uint64_t image_bytes,
                                      std::uint64_t most_extents) noexcept {
    if (of.count == 0) return failure(errc::memory_not_shared);
    const std::size_t last = of.count - 1;
    std::array<std::uint64_t, passed_descriptors::most> bytes{};
    for (std::size_t i = 0; i < of.count; ++i) {
      // Only such memory has seals: a pipe, a device, or a file that can shrink, is refused here. The size cannot
      // change any more when it is asked for.
      const int fd = of.fd[i].get();
      const sealing least = i < last || last == 0 ? sealing::all : sealing::others;
      struct stat about{};
      if (detail::sealing_of(fd) < least || ::fstat(fd, &about) != 0) return failure(errc::memory_not_sealed, i);
      bytes[i] = static_cast<std::uint64_t>(about.st_size);
      // Reading a hole would take memory of this program's; seals keep holes from being made later. Room behind the end
      // would be counted for it, so that is given back first.
      if (::ftruncate(fd, about.st_size) != 0 || ::fstat(fd, &about) != 0) return failure(errc::memory_not_sealed, i);
      if (static_cast<std::uint64_t>(about.st_blocks) * 512 < bytes[i]) return failure(errc::bad_shared_memory, i);
    }
    const auto read = [&](std::uint64_t at, std::span<std::byte> to) {
      return detail::read_all(of.fd[0].get(), at, to) == 0;
    };
    auto index = segment_index::read(read, bytes[0], bytes[last], last == 0, version, image_bytes, most_extents);
    if (!index) return failure(index.error());
    shared_segments out;
    out.first_ = std::move(of.fd[0]);
    if (last != 0) out.last_ = std::move(of.fd[last]);
    out.last_bytes_ = bytes[last];
    out.index_ = std::move(*index);
    return out;
  }

  /// Whether there is an image.
  explicit operator bool() const noexcept { return static_cast<bool>(first_); }
  /// Whether the owner itself can still change the tensors, since it has allocated and mapped them there.
  bool owner_can_write() const noexcept { return detail::sealing_of(data_descriptor()) != sealing::all; }
  /// Maps the segment with the tensors, privately: nobody else sees what a program writes there, if `writable`. Error:
  /// out_of_memory.
  result<void> map(bool writable) noexcept {
    // private even for reading: before Linux 6.7 memory that nobody may write could not be mapped otherwise
    auto pages = detail::mapped_memory::of(data_descriptor(), last_bytes_,
                                           writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_PRIVATE | MAP_NORESERVE);
    if (!pages) return failure(pages.error());
    pages_ = std::move(*pages);
    return {};
  }
  /// Gives up the mapping, and the rest with it.
  detail::mapped_memory release() && noexcept { return std::move(pages_); }
  /// The mapped memory; nullptr before map().
  std::byte* data() const noexcept { return pages_.data(); }

  /// The bytes in the mapped memory from the image's byte `offset`, which is within it. Empty: they lie with the index,
  /// which is not mapped.
  std::span<std::byte> mapped(std::uint64_t offset) const noexcept {
    const auto there = index_.find(offset);
    return there.first && last_ ? std::span<std::byte>()
                                : std::span(pages_.data() + there.at, static_cast<std::size_t>(there.bytes));
  }
  /// Copies mapped bytes of the image. 0 or errno.
  int read(std::uint64_t offset, std::span<std::byte> to) const noexcept {
    while (!to.empty()) {
      auto there = index_.find(offset);
      const std::span<std::byte> here = to.first(
          static_cast<std::size_t>(std::min<std::uint64_t>(to.size(), there.bytes)));
      if (there.first && last_) {
        if (const int system = detail::read_all(first_.get(), there.at, here); system != 0)
          return system == detail::file_ends ? EIO : system;
      } else {
        std::memcpy(here.data(), pages_.data() + there.at, here.size());
      }
      offset += here.size();
      to = to.subspan(here.size());
    }
    return 0;
  }
  /// The index of the image.
  const segment_index& index() const noexcept { return index_; }

 private:
  int data_descriptor() const noexcept { return last_ ? last_.get() : first_.get(); }

  detail::file_descriptor first_, last_;  // no last_: one segment
  detail::mapped_memory pages_;
  std::uint64_t last_bytes_ = 0;
  segment_index index_;
};

}  // namespace tensorpull
