// hf:// addresses, and what a hub's own programs keep: where it is, and the token for it.
#include "hub.hpp"

#include <tensorpull/core/digits.hpp>

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace tensorpull::facade {
namespace {

std::string environment(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}
bool is_hub_name(std::string_view name) noexcept {
  return !name.empty() && name.size() <= 96 && name.front() != '.' && name.front() != '-' &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
                  c == '.';
         });
}
/// Empty: no revision is written so.
std::string revision_of(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = text[i] == '%' ? detail::percent_octet(text, i) : optional<char>(text[i]);
    if (!c || static_cast<unsigned char>(*c) <= 0x20 || *c == 0x7f) return {};
    if (text[i] == '%') i += 2;
    out += *c;
  }
  return out;
}
/// Without spaces and line ends around it.
std::string trimmed(const std::string& text) {
  constexpr const char* spaces = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(spaces);
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(spaces) - begin + 1);
}

}  // namespace

std::optional<hub_model> hub_model::read(std::string_view text) {
  if (!is_hub(text)) return {};
  text.remove_prefix(5);
  std::size_t end = text.find_first_of("/@"), slash = text.npos;
  if (end != text.npos && text[end] == '/') slash = end, end = text.find_first_of("/@", slash + 1);
  const std::string_view repository = text.substr(0, end), kind = repository.substr(0, slash);
  if (!is_hub_name(kind) || (slash != text.npos && !is_hub_name(repository.substr(slash + 1)))) return {};
  if (slash != text.npos && (kind == "datasets" || kind == "spaces")) return {};  // these are no models
  hub_model made{std::string(repository)};
  text.remove_prefix(std::min(end, text.size()));
  if (text.starts_with('@')) {
    text.remove_prefix(1);
    const bool is_ref = text.starts_with("refs/pr/") || text.starts_with("refs/convert/");
    const std::size_t behind = std::min(text.find('/', is_ref ? text.find('/', 5) + 1 : 0), text.size());
    made.revision = revision_of(text.substr(0, behind));
    if (made.revision.empty()) return {};
    text.remove_prefix(behind);
  }
  if (text == "/") return {};
  if (!text.empty()) made.file = text.substr(1);
  return made;
}

std::string hub_endpoint() {
  std::string url = trimmed(environment("HF_ENDPOINT"));
  while (url.ends_with('/')) url.pop_back();
  return url.empty() ? "https://huggingface.co" : url;
}
std::string hub_token() {
  std::string hidden = environment("HF_HUB_DISABLE_IMPLICIT_TOKEN");
  for (char& c : hidden)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  if (hidden == "1" || hidden == "ON" || hidden == "YES" || hidden == "TRUE") return {};
  if (std::string token = trimmed(environment("HF_TOKEN")); !token.empty()) return token;
  std::string path = environment("HF_TOKEN_PATH"), home = environment("HF_HOME");
  if (home.empty() && !environment("XDG_CACHE_HOME").empty()) home = environment("XDG_CACHE_HOME") + "/huggingface";
  if (home.empty()) home = environment("HOME") + "/.cache/huggingface";
  if (path.empty()) path = home + "/token";
  std::string line;
  std::ifstream in(path);
  return std::getline(in, line) ? trimmed(line) : std::string();
}

}  // namespace tensorpull::facade
