// What HTTP clients say to an owner, in pieces of any size, while its answers are taken in pieces of any size.
#include "fuzz/fixture.hpp"

#include <tensorpull/links/pump.hpp>
#include <tensorpull/protocol/owner/owner.hpp>
#include <tensorpull/satellites/http/owner/detail/owner_endpoint.hpp>
#include <tensorpull/satellites/http/owner/http_shared.hpp>

#include <memory>

namespace test::fuzz {

namespace {

constexpr tp::ref_id open_ref{0x0123456789abcdef, 0x0123456789abcdef}, other_ref{2, 2};

struct shared_handler {
  using shared_type = tp::http_shared<tp::no_lock, 16>;
  shared_type of_all{};
  shared_type& shared() noexcept { return of_all; }
};

/// One connection from its first byte to its last.
struct conversation {
  using owner_type = tp::owner<tp::xxhash_digest, tp::default_limits>;
  using end_type = tp::detail::owner_endpoint<owner_type, shared_handler>;

  std::string out;
  std::uint64_t sent = 0;
  unsigned answered = 0;
  bool pages = false;  ///< web pages may read the answers

  conversation(const small_model& a, const small_model& b, const settings& s, input in) {
    tp::owner_storage<4, 16> storage;
    owner_type references(storage, [n = std::uint64_t{0}]() mutable { return ++n; });
    require(references.publish(a.source(), a.version(), true, open_ref, 0).has_value() &&
                references.publish(b.source(), 77, false, other_ref, 0).has_value(),
            "there is room for two");
    alignas(64) std::byte memory[8192];
    tp::buffer_pool<tp::no_lock> pool(memory, 4096);
    shared_handler handler;
    handler.of_all.options.metrics = (s.scenario & 1) != 0;
    if ((s.scenario & 4) != 0) handler.of_all.options.status = *tp::http_password::parse("0123456789abcdef");
    pages = (s.scenario & 2) != 0;
    if (pages) handler.of_all.options.allow_origin = tp::http_origin::any();
    const auto scratch = std::make_unique<std::array<std::byte, 65536>>();
    {
      end_type end(references, pool, handler);
      piecewise stream(s, in);
      tp::no_transfer idle;
      bool failed = false;
      for (int quiet = 0; quiet < 4 && !failed;) {
        const auto did = tp::pump_once(end, idle, stream, *scratch);
        failed = !did;
        for (const tp::publication& p : storage.view().slots)
          require(p.pins == 0, "a pin lasts no longer than a write");
        quiet = did && did->received + did->sent > 0 ? 0 : quiet + 1;
      }
      out.assign(reinterpret_cast<const char*>(stream.out.data()), stream.out.size());
    }
    require(pool.available() == 2, "a connection that ends gives its buffers back");
    require(handler.of_all.counts.open() == 0, "a connection that ends is not counted");
    sent = handler.of_all.counts.image_bytes();
    require(references.totals().bytes_sent == sent, "payload is counted as it is sent");
    for (const auto status : tp::http_statuses)
      answered += static_cast<unsigned>(handler.of_all.counts.answers(status));
  }
};

std::string field_of(const std::string& head, const std::string& name) {
  const std::size_t at = head.find("\r\n" + name + ": ");
  if (at == head.npos) return {};
  const std::size_t begin = at + name.size() + 4;
  return head.substr(begin, head.find("\r\n", begin) - begin);
}

/// The text of a page, whose chunks are taken apart. `at`: where it begins; afterwards where it ends.
std::string page_of(const std::string& out, std::size_t& at, const std::string& head) {
  std::string body;
  if (field_of(head, "Transfer-Encoding").empty()) {
    body = out.substr(at);
    at = out.size();
    return body;
  }
  for (;;) {
    const std::size_t line = out.find("\r\n", at);
    if (line == out.npos) break;
    const std::size_t n = std::stoull(out.substr(at, line - at), nullptr, 16), end = line + 2 + n;
    body += out.substr(line + 2, n);
    if (end + 2 > out.size()) break;
    require(out.compare(end, 2, "\r\n") == 0, "a chunk is as long as it says");
    at = end + 2;
    if (n == 0) return body;
  }
  at = out.size();  // it is cut
  return body;
}

/// Takes the answers apart as a client does that knows what it has asked; counts those that gave bytes. Dates go, since
/// two conversations may have two.
unsigned check(std::string& out, const conversation& c, const std::string (&images)[2], const std::string (&tags)[2]) {
  unsigned given = 0, answers = 0;
  std::uint64_t payload = 0;
  std::string plain;
  bool closed = false;
  for (std::size_t at = 0; at < out.size();) {
    require(!closed, "nothing follows an answer that says that it is the last");
    const std::size_t end = out.find("\r\n\r\n", at);
    if (end == out.npos) {
      plain += "cut";
      break;
    }
    const std::string head = out.substr(at, end + 2 - at);
    at = end + 4;
    require(head.substr(0, 9) == "HTTP/1.1 ", "an answer begins with the protocol's name");
    const unsigned status = static_cast<unsigned>(std::stoul(head.substr(9, 3)));
    if (status == 100) continue;  // a client that has sent the body along with the head is not told to go on
    const std::size_t date = head.find("\r\nDate: ");
    plain += date == head.npos ? head : head.substr(0, date) + head.substr(head.find("\r\n", date + 2));
    require(std::find(tp::http_statuses.begin(), tp::http_statuses.end(), status) != tp::http_statuses.end(),
            "the status is one of ours");
    ++answers;
    closed = field_of(head, "Connection") == "close";
    require(status < 500 || status == 501 || status == 503 || status == 505, "nothing goes wrong at the owner");
    const std::string tag = field_of(head, "ETag"), length = field_of(head, "Content-Length"),
                      origin = field_of(head, "Access-Control-Allow-Origin");
    require(c.pages ? origin == "*" || tag.empty() : head.find("Access-Control-") == head.npos,
            "a page may read an image if the option says so");
    require(status != 204 || c.pages, "OPTIONS is answered if a page may read");
    if (status == 304 || status == 204) continue;
    if (length.empty()) {  // of status, in chunks or up to the end: it has the time in it, which differs
      require(!field_of(head, "Content-Security-Policy").empty(), "only a page of status has no length");
      if (out.compare(at, 5, "HTTP/") == 0) continue;  // HEAD
      const std::string body = page_of(out, at, head);
      require(body.find("0123456789abcdef") == body.npos && body.find("81985529216486895") == body.npos,
              "no page has a key or a version");
      continue;
    }
    require(!length.empty(), "each answer says how long it is");
    const std::size_t n = std::stoull(length);
    if (tag.empty()) {  // text: behind HEAD there is none, and the next answer or the end follows
      if (out.compare(at, 5, "HTTP/") != 0)
        plain += out.substr(at, std::min(n, out.size() - at)), at += std::min(n, out.size() - at);
      continue;
    }
    const std::size_t which = tag == tags[0] ? 0 : 1;
    require(tag == tags[which], "a tag is that of what is published");
    std::size_t from = 0;
    if (status == 206) {
      const std::string range = field_of(head, "Content-Range");
      from = std::stoull(range.substr(6));
      require(range == "bytes " + std::to_string(from) + "-" + std::to_string(from + n - 1) + "/" +
                           std::to_string(images[which].size()),
              "the range is the one that is given");
    } else require(status == 200 && n == images[which].size(), "without a range it is the whole");
    const std::size_t there = std::min(n, out.size() - at);
    if (out.compare(at, 5, "HTTP/") == 0 || there == 0) continue;  // HEAD
    require(from <= images[which].size() && n <= images[which].size() - from &&
                out.compare(at, there, images[which], from, there) == 0,
            "the bytes are the image's");
    at += there;
    payload += there;
    ++given;
  }
  require(answers <= c.answered, "what is counted as answered was answered");
  require(payload == c.sent, "what is counted as sent was sent");
  out = std::move(plain);
  return given + (answers > 0);
}

}  // namespace

static unsigned http_requests(input in) {
  static small_model a, b(4);
  a.fill(1), b.fill(2);
  const auto text = [](const small_model& m) {
    const auto all = m.image_bytes();
    return std::string(reinterpret_cast<const char*>(all.data()), all.size());
  };
  const auto tag = [](std::uint64_t version) {
    char digits[20];
    std::snprintf(digits, sizeof digits, "\"%016llx\"", static_cast<unsigned long long>(version));
    return std::string(digits);
  };
  const std::string images[2]{text(a), text(b)}, tags[2]{tag(a.version()), tag(77)};
  const settings s = settings::of(in);
  settings at_once;
  at_once.scenario = s.scenario;
  conversation pieces(a, b, s, stream_of(in)), whole(a, b, at_once, stream_of(in));
  const unsigned given = check(pieces.out, pieces, images, tags);
  check(whole.out, whole, images, tags);
  require(pieces.out == whole.out, "an answer does not depend on how the request is cut");
  require(a.guards_intact() && b.guards_intact(), "an owner writes nothing around its tensors");
  return given;
}
static const registered http_requests_target{{"http_requests", http_requests}};

}  // namespace test::fuzz
