// SNIPPET 1
#include "context.hpp"

// SNIPPET 2

static Mlp trained{}, mine{};

/// Says a request, and gives the first line of the answer.
static std::string asked(std::uint16_t port, const std::string& request) {
  auto s = tcp_connect("127.0.0.1:" + std::to_string(port),
                       std::chrono::steady_clock::now() + std::chrono::seconds(10));
  must(s.has_value());
  const std::array<std::span<const std::byte>, 1> out{std::as_bytes(std::span(request))};
  must(s->write_some(out).bytes == request.size());
  std::string line;
  std::byte c{};
  const std::array<std::span<std::byte>, 1> in{std::span(&c, 1)};
  while (line.find('\n') == line.npos) {
    const auto io = s->read_some(in);
    must(!is_end(io.status));
    if (io.bytes == 1) line += static_cast<char>(c);
    else s->wait(true, false, std::chrono::milliseconds(20));
  }
  return line;
}

int main() {
  const std::string_view address = "127.0.0.1:0", password = "0123456789abcdef";
  trained.b2[3] = 3;
  // SNIPPET 3

  must(owner && ref && door);
  const std::string key = " HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer " +
                          std::string(to_digits(ref->id).data(), 32) + "\r\n\r\n";
  std::jthread first([&](std::stop_token stop) { owner->run(stop); });
  must(asked(door->port(), "HEAD /v1/mlp/latest" + key) == "HTTP/1.1 200 OK\r\n");
  const std::string shown = " HTTP/1.1\r\nHost: here\r\nAuthorization: Basic bWU6MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n";
  for (const char* page : {"GET /", "GET /status.json", "GET /metrics"})
    must(asked(door->port(), page + shown) == "HTTP/1.1 200 OK\r\n" &&
         asked(door->port(), page + std::string(" HTTP/1.1\r\nHost: here\r\n\r\n")) == "HTTP/1.1 401 Unauthorized\r\n");
  must(net::download_tensors("127.0.0.1:" + std::to_string(owner->port()), *ref, mine).has_value() && mine.b2[3] == 3);
}
