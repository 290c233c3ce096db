// What an HTTP proxy answers, against a reader that was written another way: it looks at the whole text.
#include "target.hpp"

#include <tensorpull/transports/over/proxy/proxy_response.hpp>

#include <regex>

namespace test::fuzz {

namespace tp = tensorpull;

static unsigned answers(input in) {
  using progress = tp::proxy_response::progress;
  tp::proxy_response reader;
  progress how = progress::more;
  std::size_t read = 0;
  while (how == progress::more && read < in.size()) how = reader.take(in[read++]);

  const std::string text(reinterpret_cast<const char*>(in.data()), in.size());
  const std::size_t end = text.find("\r\n\r\n");
  const std::string head = text.substr(0, end == std::string::npos ? end : end + 4);
  static const std::regex status("HTTP/1\\.[01] [1-5][0-9]{2}( [^]*)?");
  bool valid = end != std::string::npos && head.size() <= tp::proxy_response::most_bytes;
  for (std::size_t at = 0, line = 0; valid && at < head.size(); ++line) {
    const std::size_t stop = head.find("\r\n", at);
    const std::string one = head.substr(at, stop - at);
    for (const char c : one) valid &= static_cast<unsigned char>(c) >= 0x20 || c == '\t';
    valid &= one.find('\x7f') == std::string::npos && (line > 0 || std::regex_match(one.substr(0, 40), status));
    at = stop + 2;
  }
  require((how == progress::done) == valid, "an answer is a status line and lines of text, and ends with an empty one");
  if (how != progress::done) {
    require(how == progress::bad || read == in.size(), "it goes on as long as the answer may still be one");
    return 0;
  }
  require(read == head.size(), "not a byte behind the answer is read");
  require(reader.status() == static_cast<unsigned>(std::stoul(head.substr(9, 3))), "the status is its three digits");
  return 1;
}
static const registered answers_target{{"answers", answers}};

}  // namespace test::fuzz
