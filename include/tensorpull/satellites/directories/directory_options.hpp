// How a directory is received, and how that went.
#pragma once

#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/satellites/directories/directory_image.hpp>
#include <tensorpull/std/functional.hpp>

#include <cstdint>
#include <string_view>

namespace tensorpull {

/// Bytes that have just arrived, of a pull of `total`: those before its first are there already.
struct landed_range {
  std::uint64_t offset = 0;  ///< of the first of them
  std::uint64_t bytes = 0;   ///< how many
  std::uint64_t total = 0;   ///< of the pull
};

/// How a directory is received.
struct directory_options {
  /// Only these. Their digests are compared with those that the owner states, since the version is that of all files.
  file_choice files{};
  /// A directory that has some of the files already, perhaps the one that is replaced; empty: none. A
  /// file that has the published digest is copied from there, and not fetched.
  std::string_view base{};
  /// Replace a directory of that name, in one step; otherwise that is an error (EEXIST).
  bool overwrite = false;
  /// Fetch everything, in place of what an earlier transfer has left.
  bool anew = false;
  /// Wait until files and names are on the disk.
  bool fsync = true;
  /// Of all files together; more is refused (too_large).
  std::uint64_t max_bytes = ~std::uint64_t{0};
  /// More files are refused (too_large).
  std::uint64_t max_files = 100'000;
  /// Called on the pulling thread for all that arrives but the names. It must not throw.
  callback<const landed_range&> landed{};
};

/// Which part of it a pull is.
enum class directory_phase : std::uint8_t {
  look,  ///< for the names; ask for short chunks, of 64 KiB
  some,  ///< of some files, by name: from one owner
  whole
};

/// How it went.
struct directory_receipt {
  receipt last{};  ///< of the last pull
  std::uint64_t files = 0;  ///< that the directory has
  std::uint64_t bytes = 0;  ///< of all of them
  std::uint64_t kept = 0;  ///< of these bytes, those that were there already, in the part or in the base
};

}  // namespace tensorpull
