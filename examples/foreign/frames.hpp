// What the owner and the recipient here share: a TCP connection, and frames through it.
#pragma once

#include <tensorpull/framing/protocol.capnp.h>  // made by the capnp tool; no header of tensorpull is included

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/exception.h>
#include <kj/io.h>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cinttypes>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>

namespace foreign {

namespace wire = tensorpull::wire;

struct reference {
  std::uint64_t high, low, version;

  /// Three numbers of 16 hexadecimal digits each.
  static reference parse(const std::string& text) {
    reference r{};
    if (text.size() != 48 ||
        std::sscanf(text.c_str(), "%16" SCNx64 "%16" SCNx64 "%16" SCNx64, &r.high, &r.low, &r.version) != 3)
      throw std::runtime_error("a reference is 48 hexadecimal digits");
    return r;
  }
  std::string digits() const {
    char text[49];
    std::snprintf(text, sizeof text, "%016" PRIx64 "%016" PRIx64 "%016" PRIx64, high, low, version);
    return text;
  }
};

/// One end of a connection. A lost or silent one is a kj::Exception, which is a std::exception.
class connection {
 public:
  /// A longer frame than `most_bytes` is refused before memory is taken for it.
  connection(kj::AutoCloseFd socket, std::uint64_t most_bytes)
      : socket_(kj::mv(socket)), file_(socket_.get()), in_(file_), most_words_(most_bytes / 8) {
    const int on = 1;
    const timeval patience{60, 0};
    ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    for (const int direction : {SO_RCVTIMEO, SO_SNDTIMEO})
      ::setsockopt(socket_.get(), SOL_SOCKET, direction, &patience, sizeof patience);
    std::signal(SIGPIPE, SIG_IGN);
  }

  /// Whether the other end has not closed. Waits for its next byte.
  bool goes_on() { return in_.tryGetReadBuffer().size() > 0; }
  kj::Own<capnp::MessageReader> receive() {
    capnp::ReaderOptions limits;
    limits.traversalLimitInWords = most_words_;
    limits.nestingLimit = 8;
    return kj::heap<capnp::InputStreamMessageReader>(in_, limits);
  }
  void send(capnp::MessageBuilder& message) { capnp::writeMessageToFd(socket_.get(), message); }

 private:
  kj::AutoCloseFd socket_;
  kj::FdInputStream file_;
  kj::BufferedInputStreamWrapper in_;
  std::uint64_t most_words_;
};

inline kj::AutoCloseFd connect_to(const char* host, const char* port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host, port, &hints, &found) != 0) throw std::runtime_error("no such host");
  kj::AutoCloseFd socket;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    socket = kj::AutoCloseFd(::socket(a->ai_family, SOCK_STREAM, 0));
    if (::connect(socket.get(), a->ai_addr, a->ai_addrlen) == 0) break;
    socket = nullptr;
  }
  ::freeaddrinfo(found);
  if (socket == nullptr) throw std::runtime_error("nobody listens there");
  return socket;
}

/// At any port of 127.0.0.1.
inline kj::AutoCloseFd listen_anywhere(std::uint16_t& port) {
  kj::AutoCloseFd socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in at{};
  socklen_t size = sizeof at;
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const address = reinterpret_cast<sockaddr*>(&at);
  if (::bind(socket.get(), address, size) != 0 || ::listen(socket.get(), 64) != 0 ||
      ::getsockname(socket.get(), address, &size) != 0)
    throw std::runtime_error("cannot listen");
  port = ntohs(at.sin_port);
  return socket;
}

}  // namespace foreign
