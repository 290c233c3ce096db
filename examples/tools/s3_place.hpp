// s3://BUCKET/KEY, with what the environment says about the store, by the names that its other clients read.
#pragma once

#include "link_choice.hpp"

#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>

namespace tools {

inline bool is_s3(std::string_view text) { return text.starts_with("s3://"); }

/// Reads s3://BUCKET/KEY into a choice.
inline void parse_s3(std::string_view text, link_choice& to) {
  const auto environment = [](std::initializer_list<const char*> names) {
    for (const char* const name : names)
      if (const char* const value = std::getenv(name); value != nullptr && *value != '\0') return std::string(value);
    return std::string();
  };
  facade::s3_settings& s3 = to.http.s3;
  s3.access_key = environment({"AWS_ACCESS_KEY_ID"});
  s3.secret_key = environment({"AWS_SECRET_ACCESS_KEY"});
  s3.session_token = environment({"AWS_SESSION_TOKEN"});
  s3.region = environment({"AWS_REGION", "AWS_DEFAULT_REGION"});
  if (s3.access_key.empty() || s3.secret_key.empty())
    throw option_error("--put s3://BUCKET/KEY needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment");
  if (s3.region.empty()) s3.region = "us-east-1";
  std::string url = environment({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
  if (url.empty()) url = "https://s3." + s3.region + ".amazonaws.com";
  while (url.ends_with('/')) url.pop_back();
  if (!is_url(url) || url.find_first_of("?#@") != url.npos || url.find('/', url.find("://") + 3) != url.npos)
    throw option_error("AWS_ENDPOINT_URL has to be http[s]://HOST[:PORT]");
  const std::string_view path = text.substr(5);
  const std::size_t slash = path.find('/');
  if (slash == 0 || slash == path.npos || slash + 1 == path.size())
    throw option_error("'" + printable(text) + "' is no object: s3://BUCKET/KEY is wanted");
  url += '/';
  for (const char c : path) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                       std::string_view("-._~/").find(c) != std::string_view::npos;
    url += plain ? std::string(1, c) : formatted("%%%02X", static_cast<unsigned>(static_cast<unsigned char>(c)));
  }
  parse_url(url, "s3://BUCKET/KEY is wanted", to);
  to.text = text;
}

}  // namespace tools
