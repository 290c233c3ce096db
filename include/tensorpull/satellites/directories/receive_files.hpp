// Makes a directory of files that a program fetches one by one, such as those of a hub of models: it has its name
// complete or not at all, as one that an owner has published (receive_directory.hpp).
#pragma once

#include <tensorpull/image/arrange.hpp>
#include <tensorpull/satellites/directories/detail/arriving_directory.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tensorpull {

/// A file that a directory is to have.
struct listed_file {
  std::string_view path{};  ///< below the directory
  std::uint64_t bytes = 0;  ///< that it has
};

/// Takes a file's bytes in their order; what it returns ends the fetch.
using file_sink = std::function<result<void>(std::span<const std::byte>)>;

namespace detail {

template <class Files>
result<directory_receipt> receive_listed(Files& files, std::span<const listed_file> list, std::string_view path,
                                         const directory_options& how, const stop_token& stop) {
  if (list.size() > how.max_files) return failure(errc::too_large, list.size(), path);
  std::vector<tensor_entry> entries;
  std::vector<std::uintptr_t> of;  // their indices in the list
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!how.files(list[i].path)) continue;
    entries.push_back({.name = list[i].path, .indirect = true, .rank = 1, .shape = &list[i].bytes});
    of.push_back(i);
  }
  if (entries.empty()) return failure(errc::invalid_argument, 0, path);
  const auto schema = arrange(entries, of);
  if (!schema) return failure(schema.error());
  const std::uint64_t total = schema->data_bytes();
  if (total > how.max_bytes) return failure(errc::too_large, total, path);
  const auto base = open_base(how.base);
  if (!base) return failure(base.error());
  auto opened = directory_part::open(path, *schema, how.overwrite, how.anew);
  if (!opened) return failure(opened.error());
  directory_part& part = **opened;

  // one of the whole length is not what it should be
  const auto begun = [&](std::size_t k) {
    const std::uint64_t there = part.size(k);
    return there < entries[k].size_bytes() ? there : 0;
  };
  directory_receipt out{.files = entries.size(), .bytes = total};
  std::vector<std::size_t> missing;
  for (std::size_t k = 0; k < entries.size(); ++k) {
    const std::uint64_t size = entries[k].size_bytes();
    const auto agrees = [&](int fd) -> result<bool> {
      auto digest = files.digest(of[k]);
      if (const auto fed = feed_file(digest, fd, size, entries[k].name, stop); !fed) return failure(fed.error());
      return digest.agrees();
    };
    const int fd = part.descriptor(k);
    if (fd < 0) return file_failure(errno, entries[k].name);
    auto good = part.size(k) == size ? agrees(fd) : result<bool>(false);
    if (!good) return failure(good.error());
    if (const std::string name(entries[k].name); !*good && *base)
      if (const file_descriptor from = open_regular(base->get(), name.c_str(), size)) {
        good = agrees(from.get());
        if (!good && good.error().code == errc::cancelled) return failure(good.error());
        if (good && *good) {
          if (const auto copied = part.copy(k, from.get(), size); !copied) return failure(copied.error());
          good = agrees(part.descriptor(k));  // the base is others' to change meanwhile
        }
      }
    if (!good || !*good) missing.push_back(k);
    out.kept += good && *good ? size : begun(k);
  }
  std::uint64_t done = out.kept;
  for (const std::size_t k : missing) {
    const std::string_view name = entries[k].name;
    const std::uint64_t size = entries[k].size_bytes();
    std::uint64_t from = begun(k);
    for (bool good = false; !good;) {
      auto digest = files.digest(of[k]);
      if (const auto fed = feed_file(digest, part.descriptor(k), from, name, stop); !fed) return failure(fed.error());
      std::uint64_t at = from;
      const auto write = [&](std::span<const std::byte> bytes) -> result<void> {
        if (bytes.size() > size - at) return failure(errc::wrong_payload, at, name);
        if (const auto ok = part.write(k, at, bytes); !ok) return ok;
        digest.update(bytes);
        if (how.landed) how.landed(landed_range{done, bytes.size(), total});
        at += bytes.size(), done += bytes.size();
        return {};
      };
      if (const auto fetched = files.fetch(of[k], from, write); !fetched) return failure(fetched.error());
      if (at != size) return failure(errc::connection_lost, at, name);
      good = digest.agrees();
      if (!good && from == 0) return failure(errc::digest_mismatch, 0, name);
      if (good) continue;
      out.kept -= from, done -= size, from = 0;  // an earlier transfer has left bytes of another version
    }
  }
  if (const auto named = part.publish({}, how.fsync); !named) return failure(named.error());
  out.last = {.outcome = outcome::completed, .bytes = total};
  return out;
}

}  // namespace detail

/// Receives the files of a list into a directory. Of `Files`:
///  - digest(i): an object with update(bytes), which is fed all bytes of file i in their order, and agrees(), which
///  gives
///    whether they are the file's;
///  - fetch(i, from, sink) -> result<void>: gives the bytes of file i from `from` on to a file_sink, in their order.
/// Both count as the list does. The part that an earlier call has left is gone on with, at a file's byte; if the digest
/// of the whole file then differs, it is fetched once more from its first byte. The part stays if this fails, and the
/// next call fetches only the files that are not right. In the receipt, `last` has the outcome alone. Errors: those of
/// fetch; digest_mismatch, with the file's path; wrong_payload: more bytes than the list has; those of
/// receive_directory for names and files.
template <class Files>
[[nodiscard]] result<directory_receipt> receive_files(Files& files, std::span<const listed_file> list,
                                                      std::string_view path, const directory_options& how = {},
                                                      const stop_token& stop = {}) noexcept {
  try {
    return detail::receive_listed(files, list, path, how, stop);
  } catch (const std::bad_alloc&) {
    return failure(errc::out_of_memory);
  }
}

}  // namespace tensorpull
