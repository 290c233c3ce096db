// An HTTP server for tests: it serves one file well, unless a test says what it does wrong.
#pragma once

#include "http_bytes.hpp"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

namespace test {

/// One request as it came.
struct http_asked {
  std::string method, target, head;
  std::map<std::string, std::string> fields;  ///< names in lower case
  std::size_t number = 0;                     ///< of all requests, from 0
  std::size_t connection = 0;                 ///< from 0
  std::uint64_t there = 0;                    ///< bytes of the file
  std::string body;

  std::string field(const std::string& name) const { return fields.count(name) != 0 ? fields.at(name) : ""; }
  /// The first and the last byte of a range, which may be open to the end; false: there is none.
  bool range(std::uint64_t& first, std::uint64_t& last) const {
    const int read = std::sscanf(field("range").c_str(), "bytes=%lu-%lu", &first, &last);
    if (read == 1) last = there - 1;
    return read >= 1;
  }
};

/// Serves `content` at every path. What a test changes, it changes before the first connection, or under `changing`.
class http_server {
 public:
  /// Takes over an answer, and says whether it did.
  using answer = std::function<bool(const http_asked&, raw_peer&)>;

  /// May be assigned while the server runs: an answer that is being given goes on as it was. It borrows nothing that
  /// goes before the server; what borrows from a test is `answering`.
  class guarded_answer {
   public:
    template <class F>
    guarded_answer& operator=(F f) {
      auto made = std::make_shared<answer>(std::move(f));
      const std::lock_guard lock(mutex_);
      now_ = std::move(made);
      return *this;
    }
    bool operator()(const http_asked& a, raw_peer& peer) {
      std::shared_ptr<answer> now;
      {
        const std::lock_guard lock(mutex_);
        now = now_, ++given_;
      }
      const bool did = now && (*now)(a, peer);
      const std::lock_guard lock(mutex_);
      --given_;
      over_.notify_all();
      return did;
    }
    /// Takes it away, and waits until nobody gives it any more.
    void end() {
      std::unique_lock lock(mutex_);
      now_.reset();
      over_.wait(lock, [&] { return given_ == 0; });
    }

   private:
    std::mutex mutex_;
    std::condition_variable over_;
    std::shared_ptr<answer> now_;
    int given_ = 0;
  };

  std::string content;
  std::string etag = "\"v1\"";       ///< empty: none
  std::string fields;                ///< more fields of each answer
  bool ranges = true, persists = true, chunked = false;
  std::uint64_t close_after = ~std::uint64_t{0};  ///< bytes of bodies in all, after which the connection is closed once
  guarded_answer instead;
  std::function<void(std::size_t)> ended;  ///< called when a connection has ended, with its number
  std::mutex changing;

  std::atomic<std::size_t> accepts{~std::size_t{0}};  ///< connections; further ones are left to the kernel

  /// `backlog`: connections that the kernel takes before they are accepted.
  explicit http_server(std::string bytes, int backlog = 64)
      : content(std::move(bytes)), each_(
                                       [this](raw_peer& peer, std::size_t number, const std::stop_token& stop) {
                                         serve(peer, number, stop);
                                         if (ended) ended(number);
                                       },
                                       [this] { return connections() < accepts; }, backlog) {}
  std::uint16_t port() const { return each_.port(); }
  std::string url(std::string_view path = "/model.safetensors") const {
    return "http://" + local(port()) + std::string(path);
  }
  std::size_t connections() const { return each_.count(); }
  std::vector<http_asked> asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

  /// The usual answer.
  void serve_file(const http_asked& a, raw_peer& peer) {
    std::uint64_t first = 0, last = 0;
    const std::lock_guard lock(changing);
    const bool matches = a.field("if-range").empty() || a.field("if-range") == etag;
    const bool part = ranges && matches && a.range(first, last);
    if (part && first >= content.size())
      return (void)peer.say("HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\nContent-Range: bytes */" +
                            std::to_string(content.size()) + "\r\n\r\n");
    if (!part) first = 0, last = content.size() - 1;
    last = std::min<std::uint64_t>(last, content.size() - 1);
    const std::string_view body = std::string_view(content).substr(first, last - first + 1);
    std::string head = part ? "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes " + std::to_string(first) + "-" +
                                  std::to_string(last) + "/" + std::to_string(content.size()) + "\r\n"
                            : "HTTP/1.1 200 OK\r\n";
    if (chunked) head += "Transfer-Encoding: chunked\r\n";
    else head += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    if (!etag.empty()) head += "ETag: " + etag + "\r\n";
    if (!persists) head += "Connection: close\r\n";
    if (!peer.say(head + fields + "\r\n")) return;
    if (const std::uint64_t before = sent_.fetch_add(body.size());
        before <= close_after && before + body.size() > close_after) {
      peer.say(body.substr(0, close_after - before));
      close_now(peer);
      return;
    }
    if (!chunked) return (void)peer.say(body);
    for (std::size_t at = 0; at < body.size(); at += 1000) {
      const std::string_view piece = body.substr(at, 1000);
      char length[32];
      std::snprintf(length, sizeof length, "%zX;x=y\r\n", piece.size());
      if (!peer.say(std::string(length) + std::string(piece) + "\r\n")) return;
    }
    peer.say("0\r\nX-Trailer: y\r\n\r\n");
  }

 private:
  void serve(raw_peer& peer, std::size_t connection, const std::stop_token& stop) {
    while (!stop.stop_requested() && peer.stream().native_handle() >= 0) {
      http_asked a;
      a.connection = connection;
      {
        const std::lock_guard lock(changing);
        a.there = content.size();
      }
      while (!a.head.ends_with("\r\n\r\n")) {
        if (stop.stop_requested()) return;
        std::byte one{};
        const std::array<std::span<std::byte>, 1> in{std::span(&one, 1)};
        const auto io = peer.stream().read_some(in);
        if (tp::is_end(io.status)) return;
        if (io.bytes == 0) peer.stream().wait(true, false, 20ms);
        else a.head += static_cast<char>(one);
      }
      std::size_t at = a.head.find("\r\n");
      const std::string line = a.head.substr(0, at);
      a.method = line.substr(0, line.find(' '));
      a.target = line.substr(a.method.size() + 1, line.rfind(' ') - a.method.size() - 1);
      for (at += 2; at + 2 < a.head.size();) {
        const std::size_t end = a.head.find("\r\n", at), colon = a.head.find(": ", at);
        std::string name = a.head.substr(at, colon - at);
        for (char& c : name) c = static_cast<char>(std::tolower(c));
        a.fields[name] = a.head.substr(colon + 2, end - colon - 2);
        at = end + 2;
      }
      if (const std::string n = a.field("content-length"); !n.empty() && a.field("expect").empty())
        for (const std::byte b : peer.hear(std::stoul(n))) a.body += static_cast<char>(b);
      {
        const std::lock_guard lock(mutex_);
        a.number = asked_.size();
        asked_.push_back(a);
      }
      if (!instead(a, peer)) serve_file(a, peer);
      if (!persists) return;
    }
  }

  std::atomic<std::uint64_t> sent_{0};
  std::mutex mutex_;
  std::vector<http_asked> asked_;
  each_connection each_;
};

/// What a server answers until this object goes. Then nobody is within the answer, so it may borrow from the test.
class answering {
 public:
  template <class F>
  answering(http_server& server, F f) : server_(server) {
    server.instead = std::move(f);
  }
  answering(const answering&) = delete;
  ~answering() { server_.instead.end(); }

 private:
  http_server& server_;
};

}  // namespace test
