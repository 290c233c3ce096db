// Errors as the tools print them: a sentence for people.
#pragma once

#include "text.hpp"

#include <tensorpull/core/error.hpp>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

namespace tools {

using tensorpull::code_name;
using tensorpull::errc;
using tensorpull::error;

/// The reason without the place: the system's, if there is one.
inline std::string reason_text(const error& e) {
  if (e.code == errc::io && e.system == 0) return "it became shorter while it was read";
  return e.system != 0 ? std::strerror(e.system) : std::string(to_string(e.code));
}

/// Why the two ends of a connection do not understand each other; empty: for another reason, or it is not known.
/// `described`: whether it has said what it has. `scheme`: that of the address, "http" and "https" included.
inline std::string protocol_text(const error& e, std::string_view scheme, bool described) {
  const std::string why = e.name.empty() ? "" : " (" + printable(e.name.view()) + ")";
  const bool web = scheme == "http" || scheme == "https", encrypted = scheme == "tls" || scheme == "https";
  switch (e.code) {
    case errc::handshake_failed:
      return "and this end cannot agree on TLS" + why + (web ? "; without it, the URL is http://" : "");
    case errc::connection_failed:
      if (encrypted && e.system == ECONNRESET)
        return "ends the connection while TLS is agreed on: it may not speak TLS";
      return {};
    case errc::connection_lost:
      if (described || e.system < 0) return {};
      if (scheme == "http") return "ends the connection without an answer: it may want https://, or be no web server";
      return scheme == "tcp"
                 ? "ends the connection without an answer: it may want tls://, or be no sender of tensorpull's"
                 : "";
    case errc::bad_frame:
    case errc::too_large:
    case errc::unexpected_frame:
      if (web || described) return {};
      return "does not speak tensorpull's protocol: of a web server, the URL of the file is wanted, http://...";
    default: return {};
  }
}

/// Whether a web server was reached, and answered that it has failed (500 and above).
inline bool has_failed(const error& e) {
  const std::string_view answer = e.name.view();
  return e.code == errc::connection_failed && e.system == 0 && answer.starts_with('5') && answer.find(" from ") == 3;
}
/// Whether it leads from one redirect to the next, without end.
inline bool leads_on(const error& e) { return e.code == errc::not_permitted && e.name.view() == "too many redirects"; }

/// Whether a file could not be read, or was read and is not valid.
inline bool is_unreadable(const error& e) {
  return e.code == errc::io || e.code == errc::out_of_memory || e.code == errc::invalid_argument;
}
/// Why a file could not be read.
inline std::string unreadable_text(const error& e) {
  return e.system == EINVAL ? "it is no regular file" : reason_text(e);
}
/// The name in the error of an archive that is of another program.
inline constexpr std::string_view no_arrays = "an archive without NumPy arrays";
/// What a file is that was read and is not valid.
inline std::string rejected_text(const error& e) {
  if (e.code == errc::does_not_fit)
    return "its header is longer than any of safetensors, or it is no safetensors, npy or npz file";
  return std::string(e.name.view() == no_arrays ? no_arrays : to_string(e.code));
}
inline std::string file_error_text(std::string_view path, const error& e) {
  if (is_unreadable(e)) return printable(path) + " cannot be read: " + unreadable_text(e);
  std::string text = printable(path) + " is rejected (" + std::string(code_name(e.code));
  if (e.at != 0) text += " at byte " + std::to_string(e.at);
  const std::string_view file = path.substr(path.find_last_of('/') + 1);
  if (!e.name.empty() && e.name.view() != no_arrays && e.name.view() != tensorpull::error_name(file).view())
    text += ", tensor '" + printable(e.name.view()) + "'";
  text += "): " + rejected_text(e);
  for (const std::string_view ending : {".pt", ".pth", ".bin", ".ckpt", ".pkl"})
    if (file.ends_with(ending)) text += "; of a PyTorch checkpoint, safetensors.torch.save_file writes one that is";
  return text;
}

}  // namespace tools
