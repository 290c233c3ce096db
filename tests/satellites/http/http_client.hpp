// What the tests of the HTTP owner share: a client that says exactly what it is told, and reads answers as RFC 9112
// frames them.
#pragma once

#include "http_bytes.hpp"

#include <tensorpull/satellites/http/owner/http_door.hpp>

#include <map>
#include <string>

namespace test {

template <class Model>
std::string image_of(const Model& model) {
  return file_of<tp::raw_tensors<Model>>(model);
}
inline std::string key_of(const tp::reference& ref) {
  const auto digits = tp::to_digits(ref.id);
  return {digits.data(), digits.size()};
}
inline std::string path_of(const tp::reference& ref) { return "/v1/model/" + hex(ref.version); }

struct http_answer {
  int status = 0;  ///< 0: the other side closed before a whole answer
  std::map<std::string, std::string> fields;
  std::string body;
  std::string at(const std::string& name) const {
    const auto found = fields.find(name);
    return found == fields.end() ? std::string() : found->second;
  }
};

/// One connection.
class http_client {
 public:
  explicit http_client(std::uint16_t port) : peer_(port) {}

  bool say(std::string_view text) { return peer_.say(text); }
  /// GET or HEAD with the key, and these fields.
  http_answer ask(std::string_view method, const tp::reference& ref, std::string_view fields = {}) {
    say(request(method, path_of(ref), ref, fields));
    return hear(method == "HEAD");
  }
  static std::string request(std::string_view method, std::string_view path, const tp::reference& ref,
                             std::string_view fields = {}) {
    return std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " +
           key_of(ref) + "\r\n" + std::string(fields) + "\r\n";
  }
  http_answer hear(bool head = false) {
    http_answer a;
    std::size_t whole = 0;
    while ((whole = heard_.find("\r\n\r\n")) == heard_.npos)
      if (heard_.size() > 100'000 || !more(1)) return a;
    const std::string text = heard_.substr(0, whole + 4);
    heard_.erase(0, whole + 4);
    std::size_t at = text.find("\r\n");
    const int status = std::stoi(text.substr(9, 3));
    for (std::size_t end = 0; at + 2 < text.size() - 2; at = end) {
      end = text.find("\r\n", at + 2);
      const std::string line = text.substr(at + 2, end - at - 2);
      const std::size_t colon = line.find(": ");
      EXPECT_NE(colon, line.npos) << line;
      EXPECT_TRUE(a.fields.emplace(line.substr(0, colon), line.substr(colon + 2)).second) << "twice: " << line;
    }
    const bool none = head || status == 204 || status == 304 || status / 100 == 1;
    if (!none && a.at("Transfer-Encoding") == "chunked") {
      if (hear_chunks(a.body)) a.status = status;
      return a;
    }
    const std::size_t length = none ? 0 : std::stoull(a.at("Content-Length"));
    while (heard_.size() < length && more(length - heard_.size())) {
    }
    a.body = heard_.substr(0, length);
    heard_.erase(0, length);
    if (a.body.size() == length) a.status = status;
    return a;
  }
  /// Whether the other side closes without another word.
  bool hear_end() {
    while (more(1)) {
    }
    return ended_ && heard_.empty();
  }
  raw_peer& peer() { return peer_; }

 private:
  /// Reads a body in chunks. False: the other side closed before its end.
  bool hear_chunks(std::string& body) {
    for (;;) {
      std::size_t line = 0;
      while ((line = heard_.find("\r\n")) == heard_.npos)
        if (!more(1)) return false;
      const std::size_t n = std::stoul(heard_.substr(0, line), nullptr, 16);
      while (heard_.size() < line + 2 + n + 2)
        if (!more(1)) return false;
      EXPECT_EQ(heard_.substr(line + 2 + n, 2), "\r\n");
      body += heard_.substr(line + 2, n);
      heard_.erase(0, line + 2 + n + 2);
      if (n == 0) return true;
    }
  }
  /// Reads what there is; at least something, unless the other side has closed.
  bool more(std::size_t wanted) {
    std::vector<std::byte> room(std::max<std::size_t>(wanted, 4096));
    const std::array<std::span<std::byte>, 1> in{std::span(room)};
    for (const auto end = std::chrono::steady_clock::now() + 20s; std::chrono::steady_clock::now() < end;) {
      const auto io = peer_.stream().read_some(in);
      if (io.bytes > 0) {
        heard_.append(reinterpret_cast<const char*>(room.data()), io.bytes);
        return true;
      }
      if (tp::is_end(io.status)) {
        ended_ = true;
        return false;
      }
      peer_.stream().wait(true, false, 20ms);
    }
    return false;
  }
  raw_peer peer_;
  std::string heard_;  ///< and not looked at yet
  bool ended_ = false;
};

}  // namespace test
