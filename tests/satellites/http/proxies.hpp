// A proxy for tests: it reads one request, and says anything.
#pragma once

#include "transports/network.hpp"

namespace test {

/// A proxy that reads one request and answers with this text, a piece at a time; then it passes bytes on, if it was
/// told where to.
class fake_proxy {
 public:
  explicit fake_proxy(std::string answer, std::uint16_t to = 0, std::size_t piece = ~std::size_t{0})
      : thread_([this, answer = std::move(answer), to, piece](std::stop_token stop) { run(stop, answer, to, piece); }) {
  }
  std::uint16_t port() const { return listener_.port(); }
  std::string request() {
    thread_.join();
    return request_;
  }

 private:
  void run(const std::stop_token& stop, const std::string& answer, std::uint16_t to, std::size_t piece) {
    raw_peer near = listener_.accept();
    while (!request_.ends_with("\r\n\r\n")) {
      const auto more = near.hear(1);
      if (more.empty()) return;
      request_ += static_cast<char>(more[0]);
    }
    for (std::size_t at = 0; at < answer.size(); at += piece == ~std::size_t{0} ? answer.size() : piece)
      if (!near.say(std::string_view(answer).substr(at, piece))) return;
    if (to == 0) return;
    auto far = tp::tcp_connect(local(to), steady_clock::now() + 10s);
    if (!far) return;
    raw_peer other(std::move(*far));
    pass_on(near.stream(), other.stream(), stop);
  }
  raw_listener listener_;
  std::string request_;
  joined_thread thread_;
};

}  // namespace test
