// Models of a hub with the layout of Hugging Face's: hf://ORG/MODEL[@REVISION][/FILE].
#pragma once

#include "facade.hpp"

#include <tensorpull/protocol/retry.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tensorpull::facade {

inline bool is_hub(std::string_view address) noexcept { return address.starts_with("hf://"); }

/// What an address names.
struct hub_model {
  std::string repository;  ///< ORG/MODEL, or MODEL alone
  std::string revision = "main";  ///< a branch, a tag, or a commit
  std::string file{};  ///< its path in the repository; empty: all of them

  /// Nothing: it is no such address. A revision with slashes is written with %2F, except for refs/pr/N.
  static std::optional<hub_model> read(std::string_view address);
};

/// The hub, as programs of its own find it: HF_ENDPOINT, or Hugging Face's.
std::string hub_endpoint();
/// The token that the hub is shown: HF_TOKEN, or what its own programs have kept (HF_TOKEN_PATH, HF_HOME). Empty: there
/// is none, or HF_HUB_DISABLE_IMPLICIT_TOKEN says that it is for nobody.
std::string hub_token();

/// How a hub is asked.
struct hub_call {
  /// Its URL, with TLS, a proxy and the token, which goes to that origin alone.
  place at;
  std::chrono::milliseconds timeout = std::chrono::seconds(60);  ///< without 16 KiB of progress
  stop_token stop{};
  retry_policy retry{};
};

/// A model that is to become a directory, as directory_options has it.
struct hub_wanted {
  std::string path, base{};
  std::vector<std::string> include{}, exclude{};
  bool overwrite = false, anew = false;
  std::uint64_t max_bytes = ~std::uint64_t{0};
  /// Of what arrives: how many bytes were there before, how many have come, of how many.
  std::function<void(std::uint64_t, std::uint64_t, std::uint64_t)> landed{};
};
struct hub_brought {
  std::string commit;  ///< of which all files are
  std::uint64_t files, bytes, kept;
};
/// Where the hub has one file.
struct hub_file {
  std::string url, digest;  ///< the digest as http_settings has it
};

}  // namespace tensorpull::facade
