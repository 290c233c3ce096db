// What an HTTP server answers: the head, read at once and byte by byte, and where a redirect leads.
#include "target.hpp"

#include <tensorpull/transports/http/http_response.hpp>
#include <tensorpull/transports/http/http_url.hpp>

namespace test::fuzz {

namespace tp = tensorpull;

unsigned http_responses(input in) {
  const std::string text(reinterpret_cast<const char*>(in.data()), in.size());
  tp::http_response_reader whole;
  const auto at_once = whole.take(text);

  tp::http_response_reader pieces;
  tp::result<std::size_t> cut = std::size_t{0};
  for (std::size_t n = 1; n <= text.size() && cut && *cut == 0; ++n) cut = pieces.take(std::string_view(text).substr(0, n));
  require(at_once.has_value() == cut.has_value(), "a head is refused however it is cut");
  if (!at_once) return 0;
  require(*at_once == *cut, "a head ends at the same byte however it is cut");
  if (*at_once == 0) return 0;
  const tp::http_head& head = whole.head();
  require(text.find("\r\n\r\n") + 4 == *at_once && *at_once <= tp::http_response_reader::most_bytes, "a head ends with its empty line");
  require(!(head.has_length && head.chunked), "a body has one length");
  require(!head.has_range || head.range.unsatisfied || (head.range.from < head.range.to && head.range.to <= head.range.total), "a range lies in the file");
  for (const char c : head.etag.view()) require(c != '\r' && c != '\n', "a validator cannot end a line");
  for (const bool secure : {false, true}) {
    const auto base = *tp::parse_http_url(secure ? "https://h:1/a/b?c" : "http://h:1/a/b?c");
    const auto to = tp::resolve_location(base, head.location);
    if (!to) continue;
    require(!secure || to->secure, "no redirect leads away from TLS");
    const auto again = tp::parse_http_url(to->text());
    require(again.has_value() && again->text() == to->text(), "a URL is read again as itself");
  }
  return 1;
}

}  // namespace test::fuzz
