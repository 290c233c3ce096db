// What an HTTP server answers: the head, read at once and byte by byte, where a redirect leads, and the body with the
// end of the connection behind it.
#include "fuzz/target.hpp"

#include <tensorpull/satellites/http/recipient/detail/http_line.hpp>
#include <tensorpull/satellites/http/recipient/http_response.hpp>
#include <tensorpull/satellites/http/text/http_url.hpp>

#include <array>
#include <cstring>
#include <vector>

namespace test::fuzz {

namespace tp = tensorpull;

namespace {

/// A connection that takes everything, answers with this text in pieces of `piece` bytes, and ends.
class said_stream {
 public:
  said_stream(std::string_view text, std::size_t piece) noexcept : text_(text), piece_(piece) {}
  tp::io_result read_some(std::span<const std::span<std::byte>> out) noexcept {
    if (waits_ = !waits_; waits_) return {tp::io_status::would_block, 0, 0};
    if (text_.empty()) return {tp::io_status::closed, 0, 0};
    tp::io_result io{};
    std::size_t room = piece_;
    for (const auto& s : out) {
      const std::size_t n = std::min({s.size(), text_.size(), room});
      if (n > 0) std::memcpy(s.data(), text_.data(), n);
      text_.remove_prefix(n), room -= n, io.bytes += n;
    }
    return io;
  }
  tp::io_result write_some(std::span<const std::span<const std::byte>> in) noexcept {
    tp::io_result io{};
    for (const auto& s : in) io.bytes += s.size();
    return io;
  }
  static tp::io_ready wait(bool read, bool write, std::chrono::milliseconds) noexcept { return {read, write}; }
  static int native_handle() noexcept { return -1; }

 private:
  std::string_view text_;
  std::size_t piece_;
  bool waits_ = false;
};

/// The body that a pull would take of this, and how it ended; `room`: bytes of memory that are there for it at once.
std::string body_of(std::string_view text, std::size_t piece, std::size_t room) {
  tp::detail::http_line<said_stream> line;
  line.connect(said_stream(text, piece));
  line.ask("GET / HTTP/1.1\r\n", 0, 1, {});
  for (;;) {
    const auto there = line.step();
    if (!there) return "no head";
    if (*there) break;
  }
  std::string body;
  std::vector<std::byte> memory(room);
  while (!line.body_ended()) {
    const auto n = line.available();
    if (!n) return body + "; refused";
    if (*n == 0) continue;  // wait, or it has ended
    const std::array<std::span<std::byte>, 1> out{
        std::span(memory).first(static_cast<std::size_t>(std::min<std::uint64_t>(*n, room)))};
    const auto io = line.take(out);
    require(io.bytes <= out[0].size(), "no more is taken than there is room for");
    body.append(reinterpret_cast<const char*>(memory.data()), io.bytes);
    require(body.size() <= text.size(), "no more is taken than has come");
    if (io.status != tp::io_status::ok && io.status != tp::io_status::would_block && !line.body_ended())
      return body + "; cut";
  }
  for (;;) {
    const auto end = line.at_end();
    require(end.has_value(), "what has ended has an end");
    if (*end) break;
  }
  const bool kept = line.head().persists;
  line.done();
  require(line.now() == tp::detail::http_line<said_stream>::phase::idle, "a connection is idle behind an answer");
  require(kept || !line.connected(), "a connection is kept only if the server lets it");
  return body;
}

}  // namespace

static unsigned http_responses(input in) {
  const std::string text(reinterpret_cast<const char*>(in.data()), in.size());
  tp::http_response_reader whole;
  const auto at_once = whole.take(text);

  tp::http_response_reader pieces;
  tp::result<std::size_t> cut = std::size_t{0};
  for (std::size_t n = 1; n <= text.size() && cut && *cut == 0; ++n)
    cut = pieces.take(std::string_view(text).substr(0, n));
  require(at_once.has_value() == cut.has_value(), "a head is refused however it is cut");
  if (!at_once) return 0;
  require(*at_once == *cut, "a head ends at the same byte however it is cut");
  if (*at_once == 0) return 0;
  const tp::http_head& head = whole.head();
  require(text.find("\r\n\r\n") + 4 == *at_once && *at_once <= tp::http_response_reader::most_bytes,
          "a head ends with its empty line");
  require(!(head.has_length && head.chunked), "a body has one length");
  require(!head.has_range || head.range.unsatisfied ||
              (head.range.from < head.range.to && head.range.to <= head.range.total),
          "a range lies in the file");
  for (const char c : head.etag.view()) require(c != '\r' && c != '\n', "a validator cannot end a line");
  for (const bool secure : {false, true}) {
    const auto base = *tp::parse_http_url(secure ? "https://h:1/a/b?c" : "http://h:1/a/b?c");
    const auto to = tp::resolve_location(base, head.location);
    if (!to) continue;
    require(!secure || to->secure, "no redirect leads away from TLS");
    const auto again = tp::parse_http_url(to->text());
    require(again.has_value() && again->text() == to->text(), "a URL is read again as itself");
  }
  const std::string body = body_of(text, text.size(), text.size());
  require(body == body_of(text, 1, 3) && body == body_of(text, 7, 1), "a body is the same however it is cut");
  return 1;
}
static const registered http_responses_target{{"http_responses", http_responses}};

}  // namespace test::fuzz
